"""Will this language model fit on this accelerator, and how fast will it run there?"""

import os

__version__ = "0.1.0"

# Matrices of 96 rows are multiplied in a few microseconds by one thread, and in many more by several. NumPy reads this
# when it is first imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
