"""`python -m minidist`: the same as the command `minidist`."""

import sys

from minidist.cli import main

sys.exit(main())
