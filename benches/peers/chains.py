"""The parameters of the image chains, which all contenders share."""

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
#: Mean and standard deviation of R1's gray images.
GRAY_MEAN, GRAY_STD = 0.5, 0.5

#: R1 is the SimCLRv2 pipeline of cedar (PVLDB 18(2), 2024): random resized crop, flip, jitter, gray, blur, normalise.
R1_SIZE = 244
JITTER = 0.1
BLUR = 11
SIGMA = (0.1, 2.0)

SIZE = 224
SHORTEST = 256
#: Sides of the thumbnails, as stored and as cropped.
THUMBNAIL, THUMBNAIL_CROP = 72, 64

#: Fixed values of random functions, for the comparison of outputs: a box (top, left, height, width), a factor, a sigma.
#: The flip always happens.
BOX = (16, 24, 300, 320)
BRIGHTNESS = 1.2
FIXED_SIGMA = 1.0
