"""Links between the pages lead somewhere."""


def broken_links(page, read_page):
    return [link for link in page.links if "://" not in link and not resolves(page, link, read_page)]


def resolves(page, link, read_page):
    path, _, anchor = link.partition("#")
    target = (page.path.parent / path).resolve() if path else page.path
    return target.exists() and (not anchor or anchor in read_page.read(target).anchors)


def test_relative_links_and_their_anchors_resolve(pages, read_page):
    assert {page.path.name: broken_links(page, read_page) for page in pages} == {page.path.name: [] for page in pages}


def test_a_broken_link_would_be_found(tmp_path, read_page):
    (tmp_path / "page.md").write_text("# One\n[here](#one) [no](#two) [no](missing.md) [out](https://example.org)")
    assert broken_links(read_page.read(tmp_path / "page.md"), read_page) == ["#two", "missing.md"]
