"""``python -m service.cli`` is ``sizing``."""

import sys

from service.cli import main

sys.exit(main())
