"""The programs that ours is measured beside.

What is made here is made with a module of the product, whichever Python runs the comparison.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2]))
