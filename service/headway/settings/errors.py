"""What is wrong with a setting, and where it was written."""

from __future__ import annotations

from headway.core.errors import SettingError, plain


class InvalidSetting(SettingError):
    """A value that does not hold. ``setting`` is the key as it was written, ``name`` the field it stands for."""

    def __init__(self, setting: str, value: object, fix: str, *, name: str, source: str) -> None:
        super().__init__(setting, value, fix)
        self.name = name
        self.source = source

    def __str__(self) -> str:
        return f"{self.setting} = {plain(self.value)!r} ({self.source}): {self.fix}"


class UnknownSetting(SettingError):
    """A key that stands for nothing. Its value is not shown: a misspelt password is still a password."""

    def __init__(self, setting: str, *, source: str, nearest: str | None) -> None:
        super().__init__(setting, None, f"did you mean {nearest}?" if nearest else "`headway config` lists them all")
        self.source = source
        self.nearest = nearest

    def __str__(self) -> str:
        return f"{self.setting} ({self.source}): no such setting; {self.fix}"
