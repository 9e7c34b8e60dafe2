"""Will this language model fit on this accelerator, and how fast will it run there?"""

__version__ = "0.1.0"
