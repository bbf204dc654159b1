"""The commands of `headway`, one module each, whose attribute ``command`` the command line looks for.

Modules of this package import at their top what is quick to import (click, core, settings); brokers, roles and tables
are imported inside the function that needs them.
"""
