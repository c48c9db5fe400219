"""``python -m trainer``: the same as ``train-rl``."""

from trainer.cli import main

raise SystemExit(main())
