"""Every setting by flag, environment variable and YAML file, in that order of precedence.

    settings = Settings.load(flags, os.environ, config_file)
    settings.scheduler.max_num_seqs          # each package is given its own frozen group, never this object

`fields` reads the settings off the groups, `sources` and `values` read what people write, `loader` brings it together.
"""

from headway.settings.errors import InvalidSetting, UnknownSetting
from headway.settings.fields import SettingField
from headway.settings.settings import Settings, SettingValue, list_settings

__all__ = ["InvalidSetting", "SettingField", "SettingValue", "Settings", "UnknownSetting", "list_settings"]
