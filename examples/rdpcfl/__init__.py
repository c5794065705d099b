"""R-DPCFL as an algorithm of one's own: questions, a mechanism and an estimator, outside of the package."""

from examples.rdpcfl.learning import RDPCFL

__all__ = ["RDPCFL"]
