"""`headway demo`: jobs of three tenants go through a real NATS, queue and worker on this machine.

jobs         what the tenants ask
run          submits them all at once and follows each
view         shows them while they run
report       the figures afterwards
utilisation  the same lengths again, through the real scheduler without a model
"""

from headway.commands.demo.command import command

__all__ = ["command"]
