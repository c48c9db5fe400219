"""``python -m curvefit`` is ``fit-curve``."""

import sys

from curvefit.cli import main

if __name__ == "__main__":
    sys.exit(main())
