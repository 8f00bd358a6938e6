"""Faster forms of a plain model, which stays as it is.

:func:`coursekit.fast.training.for_training` gives a view with the same
parameters, :func:`coursekit.fast.inference.pack` a copy of the weights.  Both
round in other places than the plain model: in float32 packed logits differ
by less than 1e-5 of the largest one.  With dropout the view draws other masks,
with p rounded to a multiple of 1/65,536.
"""
