"""`python -m jaxbounds`: a what-if question on real data, answered by bounds and checked by retraining."""

import sys

from jaxbounds.demo import main

if __name__ == "__main__":
    sys.exit(main())
