"""Every function of Forebay's catalogue. Made by `typed_functions.py`; not to be edited."""

from collections.abc import Callable

from .expr import Expr, IntoExpr

# The first argument is the column that the function reads. A text would be a constant there, where a column is meant: col("image").
_First = Expr | bool | int | float | bytes | list[float] | tuple[float, ...]

# Other row-wise functions of SQL.
def __getattr__(name: str) -> Callable[..., Expr]: ...

def center_crop(image: _First, height: IntoExpr, width: IntoExpr) -> Expr:
    """Cuts out the centre of an image; zeros surround an image that is smaller.

    Args:
        image: A decoded image [H, W, C] of u8, f16 or f32.
        height: Rows of the result, 1 to 65535.
        width: Columns of the result, 1 to 65535.

    Returns:
        An image of that size, same element type.

    Counterpart: torchvision v2.CenterCrop((h, w)): equal.

    In SQL:
        SELECT center_crop(resize_shortest(decode_image(image), 256), 224, 224) FROM photos
    """

def color_jitter(image: _First, brightness: IntoExpr, contrast: IntoExpr = None, saturation: IntoExpr = None, hue: IntoExpr = None, *, stream: str | None = None) -> Expr:
    """Changes brightness, contrast, saturation and hue by random factors in random order.

    Args:
        image: A decoded image [H, W, C] of u8, f16 or f32.
        brightness: x: factor uniform in [max(0, 1 - x), 1 + x]; or [min, max].
        contrast: As brightness; default 0.
        saturation: As brightness; default 0.
        hue: x: turn uniform in [-x, x] of a circle, at most 0.5; or [min, max]; default 0.
        stream: Name of draws to share with other calls.

    Returns:
        An image of the same size and element type.

    Counterpart: torchvision v2.ColorJitter: given factors and order, within 1 of 255 a change (2 for hue). Factors that cannot change anything are left out.

    In SQL:
        SELECT color_jitter(decode_image(image), 0.4, 0.4, 0.4, 0.1) FROM photos
    """

def crop(image: _First, top: IntoExpr, left: IntoExpr, height: IntoExpr, width: IntoExpr) -> Expr:
    """Cuts out a rectangle; places outside the image are zeros.

    Args:
        image: A decoded image [H, W, C] of u8, f16 or f32.
        top: First row, may be negative.
        left: First column, may be negative.
        height: Rows of the result, 1 to 65535.
        width: Columns of the result, 1 to 65535.

    Returns:
        An image of that size, same element type.

    Counterpart: torchvision v2.functional.crop: equal.

    In SQL:
        SELECT crop(decode_image(image), 0, 0, 64, 64) FROM photos
    """

def decode_image(bytes: _First, mode: IntoExpr = None, damage: IntoExpr = None) -> Expr:
    """Decodes a JPEG, PNG, WebP, GIF (first frame), BMP or TIFF image.

    Args:
        bytes: The file's bytes (Binary).
        mode: 'rgb' (default), 'gray' (ITU-R BT.601 luma in Pillow's fixed point) or 'luma' (a JPEG's own luma, which saves decoding its colors; other files as 'gray').
        damage: 'lenient' (default): where a JPEG's coded data is damaged, pixels have defined values, whatever part of the image later functions read. 'strict': decodes the whole image, and damage is an error. It may also stand in the place of mode.

    Returns:
        An image u8[H, W, 3], or u8[H, W, 1] in modes 'gray' and 'luma'; height and width differ by row.

    Counterpart: torchvision.io.decode_image(apply_exif_orientation=True), PIL.Image.open: orientation is applied, alpha dropped without blending, 16 bits keep the high byte, CMYK and YCCK become RGB as in Pillow. The pixels of a JPEG are libjpeg-turbo's (accurate DCT, fancy upsampling) to the bit. A truncated file is an error, as is an image above 178 956 970 pixels.

    In SQL:
        SELECT decode_image(image) FROM photos
    """

def gaussian_blur(image: _First, kernel: IntoExpr, sigma_min: IntoExpr = None, sigma_max: IntoExpr = None, *, stream: str | None = None) -> Expr:
    """Blurs an image with a Gaussian, of random width if a range is given.

    Args:
        image: A decoded image [H, W, C] of u8, f16 or f32.
        kernel: Places of the kernel, odd, 1 to 1023; [across, down] is also accepted.
        sigma_min: Least standard deviation in pixels; default 0.1. Alone: the only one.
        sigma_max: Greatest standard deviation in pixels; default 2.
        stream: Name of draws to share with other calls.

    Returns:
        An image of the same size; an error if it is too small to mirror half the kernel.

    Counterpart: torchvision v2.GaussianBlur(kernel, sigma): within 1 of 255 given sigma. It counts as random even where one sigma is given.

    In SQL:
        SELECT gaussian_blur(decode_image(image), 23, 0.1, 2.0) FROM photos
    """

def grayscale(image: _First, channels: IntoExpr = None) -> Expr:
    """Brings an image to gray: 0.2989 R + 0.587 G + 0.114 B.

    Args:
        image: A decoded image [H, W, C] of u8, f16 or f32.
        channels: 1 (default) or 3 equal channels.

    Returns:
        A gray image of the same element type; bytes are truncated.

    Counterpart: torchvision v2.Grayscale(num_output_channels): within 1 of 255 (order of sums).

    In SQL:
        SELECT grayscale(decode_image(image)) FROM photos
    """

def hflip(image: _First) -> Expr:
    """Mirrors left and right.

    Args:
        image: A decoded image [H, W, C] of u8, f16 or f32.

    Returns:
        The mirrored image.

    Counterpart: torchvision v2.functional.horizontal_flip: equal.

    In SQL:
        SELECT hflip(decode_image(image)) FROM photos
    """

def image_height(bytes: _First) -> Expr:
    """Height of an encoded image as shown, from its header alone.

    Args:
        bytes: The file's bytes (Binary).

    Returns:
        Int32, in pixels, orientation applied.

    Counterpart: PIL.Image.open(..).height after ImageOps.exif_transpose.

    In SQL:
        SELECT * FROM photos WHERE image_height(image) >= 224
    """

def image_width(bytes: _First) -> Expr:
    """Width of an encoded image as shown, from its header alone.

    Args:
        bytes: The file's bytes (Binary).

    Returns:
        Int32, in pixels, orientation applied.

    Counterpart: PIL.Image.open(..).width after ImageOps.exif_transpose.

    In SQL:
        SELECT * FROM photos WHERE image_width(image) >= 224
    """

def normalize(image: _First, mean: IntoExpr, std: IntoExpr = None) -> Expr:
    """Subtracts a mean and divides by a standard deviation, per channel.

    Args:
        image: A decoded image, [H, W, C] or [C, H, W]; u8 is first divided by 255.
        mean: A number, or one per channel, on the scale 0 to 1. 'imagenet' gives both.
        std: A number, or one per channel, not 0.

    Returns:
        A float image of the same size, f32 unless the image is f16.

    Counterpart: torchvision v2.ToDtype(torch.float32, scale=True) then v2.Normalize(mean, std): equal in single precision.

    In SQL:
        SELECT normalize(decode_image(image), [0.5, 0.5, 0.5], [0.25, 0.25, 0.25]) FROM photos
    """

def one_hot(label: _First, n: IntoExpr) -> Expr:
    """Makes a label a vector with 1 at the label and 0 elsewhere.

    Args:
        label: An integer from 0 to n - 1; any other is an error of its row.
        n: Length of the vector, 1 to 1048576.

    Returns:
        A tensor f32[n].

    Counterpart: torch.nn.functional.one_hot, which gives int64; floats are what soft labels need.

    In SQL:
        SELECT one_hot(label, 10) FROM photos
    """

def pad(image: _First, padding: IntoExpr, fill: IntoExpr = None, mode: IntoExpr = None) -> Expr:
    """Adds a border.

    Args:
        image: A decoded image [H, W, C] of u8, f16 or f32.
        padding: Pixels: one number, [left and right, top and bottom], or [left, top, right, bottom].
        fill: Value of the border in mode 'constant', a number or one per channel; default 0.
        mode: 'constant' (default), 'edge', 'reflect' or 'symmetric'.

    Returns:
        The larger image, same element type.

    Counterpart: torchvision v2.Pad(padding, fill, padding_mode): equal.

    In SQL:
        SELECT pad(decode_image(image), 4, 0, 'reflect') FROM photos
    """

def posterize(image: _First, bits: IntoExpr) -> Expr:
    """Keeps the highest bits of each sample; floats are brought to that many levels.

    Args:
        image: A decoded image [H, W, C] of u8, f16 or f32.
        bits: Bits to keep, 0 to 8.

    Returns:
        An image of the same type.

    Counterpart: torchvision v2.functional.posterize: equal.

    In SQL:
        SELECT posterize(decode_image(image), 4) FROM photos
    """

def random_affine(image: _First, degrees: IntoExpr, translate: IntoExpr = None, scale: IntoExpr = None, shear: IntoExpr = None, filter: IntoExpr = None, fill: IntoExpr = None, *, stream: str | None = None) -> Expr:
    """Turns, moves, scales and shears an image at random, about its centre.

    Args:
        image: A decoded image [H, W, C] of u8, f16 or f32.
        degrees: Angle, clockwise: uniform in [-degrees, degrees], or in [min, max].
        translate: Greatest shift as a part of width and of height, [across, down], each 0 to 1; shifts are whole pixels; default none.
        scale: Factor, uniform in [min, max], above 0; default 1.
        shear: Angle between axes in degrees, -90 to 90: uniform in [-shear, shear] or [min, max] along x, or [x_min, x_max, y_min, y_max]; default none.
        filter: 'nearest' (default) or 'bilinear'.
        fill: Value of uncovered places, a number or one per channel; default 0.
        stream: Name of draws to share with other calls.

    Returns:
        An image of the same size and element type.

    Counterpart: torchvision v2.RandomAffine(degrees, translate, scale, shear, interpolation, fill): given what is drawn, 'bilinear' within 1 of 255; 'nearest' may choose the other of two pixels whose borders a sample point meets.

    In SQL:
        SELECT random_affine(decode_image(image), 15, [0.1, 0.1], [0.8, 1.2], 10) FROM photos
    """

def random_bool(p: IntoExpr = None, *, stream: str | None = None) -> Expr:
    """True with a probability, per row.

    Args:
        p: Probability, 0 to 1; default 0.5.
        stream: Name of draws to share with other calls.

    Returns:
        Boolean.

    Counterpart: In place of SQL's random(): the number depends on seed, epoch, stream and row alone, so every run, thread count and machine draws the same.

    In SQL:
        SELECT * FROM photos WHERE random_bool(0.1)
    """

def random_crop(image: _First, height: IntoExpr, width: IntoExpr, padding: IntoExpr = None, *, stream: str | None = None) -> Expr:
    """Cuts out a rectangle at a random place, after padding with zeros.

    Args:
        image: A decoded image [H, W, C] of u8, f16 or f32.
        height: Rows of the result, 1 to 65535.
        width: Columns of the result, 1 to 65535.
        padding: As for pad; default none.
        stream: Name of draws to share with other calls.

    Returns:
        An image of that size, same element type; an error if the padded image is smaller.

    Counterpart: torchvision v2.RandomCrop((h, w), padding): equal given the place.

    In SQL:
        SELECT random_crop(decode_image(image), 32, 32, 4) FROM photos
    """

def random_erasing(image: _First, p: IntoExpr = None, scale_min: IntoExpr = None, scale_max: IntoExpr = None, ratio_min: IntoExpr = None, ratio_max: IntoExpr = None, value: IntoExpr = None, *, stream: str | None = None) -> Expr:
    """Overwrites a random rectangle with a probability.

    Args:
        image: A decoded image, [H, W, C] or [C, H, W].
        p: Probability, 0 to 1; default 0.5.
        scale_min: Least part of the image's area; default 0.02. [min, max] is also accepted.
        scale_max: Greatest part of the image's area; default 0.33.
        ratio_min: Least height / width; default 0.3. [min, max] is also accepted.
        ratio_max: Greatest height / width; default 3.3.
        value: A number, one per channel, or 'random' (normal draws, float images only); default 0.
        stream: Name of draws to share with other calls.

    Returns:
        The image, a rectangle of it overwritten or not.

    Counterpart: torchvision v2.RandomErasing(p, scale, ratio, value): equal given the rectangle.

    In SQL:
        SELECT random_erasing(normalize(decode_image(image), 'imagenet'), 0.25) FROM photos
    """

def random_grayscale(image: _First, p: IntoExpr = None, *, stream: str | None = None) -> Expr:
    """Brings an image to gray with a probability, keeping its channels.

    Args:
        image: A decoded image [H, W, C] of u8, f16 or f32.
        p: Probability, 0 to 1; default 0.1.
        stream: Name of draws to share with other calls.

    Returns:
        An image of the same type.

    Counterpart: torchvision v2.RandomGrayscale(p): as grayscale given the choice.

    In SQL:
        SELECT random_grayscale(decode_image(image), 0.2) FROM photos
    """

def random_hflip(image: _First, p: IntoExpr = None, *, stream: str | None = None) -> Expr:
    """Mirrors left and right with a probability.

    Args:
        image: A decoded image [H, W, C] of u8, f16 or f32.
        p: Probability, 0 to 1; default 0.5.
        stream: Name of draws to share with other calls.

    Returns:
        The image, mirrored or not.

    Counterpart: torchvision v2.RandomHorizontalFlip(p): equal given the choice.

    In SQL:
        SELECT random_hflip(decode_image(image), 0.5) FROM photos
    """

def random_int(low: _First, high: IntoExpr, *, stream: str | None = None) -> Expr:
    """A uniform random whole number per row.

    Args:
        low: Least value, from -2^53.
        high: Greatest value, included, to 2^53.
        stream: Name of draws to share with other calls.

    Returns:
        Int64 from low to high.

    Counterpart: In place of SQL's random(): the number depends on seed, epoch, stream and row alone, so every run, thread count and machine draws the same.

    In SQL:
        SELECT random_int(0, 9) AS fold FROM photos
    """

def random_normal(mean: IntoExpr = None, std: IntoExpr = None, *, stream: str | None = None) -> Expr:
    """A normal random number per row.

    Args:
        mean: Mean; default 0.
        std: Standard deviation, not negative; default 1.
        stream: Name of draws to share with other calls.

    Returns:
        Float64.

    Counterpart: In place of SQL's random(): the number depends on seed, epoch, stream and row alone, so every run, thread count and machine draws the same.

    In SQL:
        SELECT price + random_normal(0, 0.1) AS price FROM rows
    """

def random_perspective(image: _First, distortion_scale: IntoExpr = None, p: IntoExpr = None, filter: IntoExpr = None, fill: IntoExpr = None, *, stream: str | None = None) -> Expr:
    """Shows an image in a random perspective with a probability.

    Args:
        image: A decoded image [H, W, C] of u8, f16 or f32.
        distortion_scale: Part of half the width and height by which a corner may move inwards, 0 to 1; default 0.5.
        p: Probability, 0 to 1; default 0.5.
        filter: 'bilinear' (default) or 'nearest'.
        fill: Value of uncovered places, a number or one per channel; default 0.
        stream: Name of draws to share with other calls.

    Returns:
        An image of the same size and element type.

    Counterpart: torchvision v2.RandomPerspective(distortion_scale, p, interpolation, fill): given the corners, 'bilinear' within 1 of 255; 'nearest' may choose the other of two pixels whose borders a sample point meets. An image stays as it is where no perspective has these corners, as in an image one pixel wide.

    In SQL:
        SELECT random_perspective(decode_image(image), 0.4, 0.5) FROM photos
    """

def random_resized_crop(image: _First, height: IntoExpr, width: IntoExpr, scale_min: IntoExpr = None, scale_max: IntoExpr = None, ratio_min: IntoExpr = None, ratio_max: IntoExpr = None, filter: IntoExpr = None, *, stream: str | None = None) -> Expr:
    """Cuts out a rectangle of random area, aspect ratio and place, and resizes it.

    Args:
        image: A decoded image [H, W, C] of u8, f16 or f32.
        height: Rows of the result, 1 to 65535.
        width: Columns of the result, 1 to 65535.
        scale_min: Least part of the image's area; default 0.08. [min, max] is also accepted.
        scale_max: Greatest part of the image's area; default 1.
        ratio_min: Least width / height; default 3/4. [min, max] is also accepted.
        ratio_max: Greatest width / height; default 4/3.
        filter: 'bilinear' (default), 'bicubic', 'lanczos', all antialiased, or 'nearest'.
        stream: Name of draws to share with other calls.

    Returns:
        An image of that size, same element type.

    Counterpart: torchvision v2.RandomResizedCrop((h, w), scale, ratio, antialias=True): given the rectangle, as resize.

    In SQL:
        SELECT random_resized_crop(decode_image(image), 224, 224) FROM photos
    """

def random_rotate(image: _First, degrees: IntoExpr, filter: IntoExpr = None, expand: IntoExpr = None, fill: IntoExpr = None, *, stream: str | None = None) -> Expr:
    """Rotates an image by a random angle.

    Args:
        image: A decoded image [H, W, C] of u8, f16 or f32.
        degrees: Uniform in [-degrees, degrees], or in [min, max].
        filter: 'nearest' (default) or 'bilinear'.
        expand: If true, the result grows to hold the whole rotated image; default false.
        fill: Value of uncovered places, a number or one per channel; default 0.
        stream: Name of draws to share with other calls.

    Returns:
        An image of the same size; of differing sizes with expand.

    Counterpart: torchvision v2.RandomRotation(degrees): as rotate given the angle.

    In SQL:
        SELECT random_rotate(decode_image(image), 10) FROM photos
    """

def random_uniform(low: IntoExpr = None, high: IntoExpr = None, *, stream: str | None = None) -> Expr:
    """A uniform random number per row.

    Args:
        low: Least value; default 0.
        high: Value above the greatest; default 1.
        stream: Name of draws to share with other calls.

    Returns:
        Float64 in [low, high).

    Counterpart: In place of SQL's random(): the number depends on seed, epoch, stream and row alone, so every run, thread count and machine draws the same.

    In SQL:
        SELECT * FROM photos WHERE random_uniform() < 0.9
    """

def random_vflip(image: _First, p: IntoExpr = None, *, stream: str | None = None) -> Expr:
    """Mirrors top and bottom with a probability.

    Args:
        image: A decoded image [H, W, C] of u8, f16 or f32.
        p: Probability, 0 to 1; default 0.5.
        stream: Name of draws to share with other calls.

    Returns:
        The image, mirrored or not.

    Counterpart: torchvision v2.RandomVerticalFlip(p): equal given the choice.

    In SQL:
        SELECT random_vflip(decode_image(image)) FROM photos
    """

def resize(image: _First, height: IntoExpr, width: IntoExpr, filter: IntoExpr = None) -> Expr:
    """Resizes an image to a height and width.

    Args:
        image: A decoded image [H, W, C] of u8, f16 or f32.
        height: Rows of the result, 1 to 65535.
        width: Columns of the result, 1 to 65535.
        filter: 'bilinear' (default), 'bicubic', 'lanczos', all antialiased, or 'nearest'.

    Returns:
        An image of that size, same element type.

    Counterpart: torchvision v2.Resize((h, w), antialias=True): within 1 of 255 on bytes, 1e-5 on floats. 'lanczos' is Pillow's, which torchvision offers on PIL images only.

    In SQL:
        SELECT resize(decode_image(image), 224, 224) FROM photos
    """

def resize_shortest(image: _First, size: IntoExpr, filter: IntoExpr = None) -> Expr:
    """Resizes an image so that its shorter side has a size, keeping its proportions.

    Args:
        image: A decoded image [H, W, C] of u8, f16 or f32.
        size: Pixels of the shorter side, 1 to 65535.
        filter: 'bilinear' (default), 'bicubic', 'lanczos', all antialiased, or 'nearest'.

    Returns:
        An image of that size, same element type; the longer side is rounded down.

    Counterpart: torchvision v2.Resize(size, antialias=True): as resize.

    In SQL:
        SELECT resize_shortest(decode_image(image), 256) FROM photos
    """

def rotate(image: _First, degrees: IntoExpr, filter: IntoExpr = None, expand: IntoExpr = None, fill: IntoExpr = None) -> Expr:
    """Rotates an image counter-clockwise about its centre.

    Args:
        image: A decoded image [H, W, C] of u8, f16 or f32.
        degrees: Angle.
        filter: 'nearest' (default) or 'bilinear'.
        expand: If true, the result grows to hold the whole rotated image; default false.
        fill: Value of uncovered places, a number or one per channel; default 0.

    Returns:
        An image of the same size, or larger with expand.

    Counterpart: torchvision v2.functional.rotate on tensors: 'bilinear' within 1 of 255; 'nearest' may choose the other of two pixels whose borders a sample point meets.

    In SQL:
        SELECT rotate(decode_image(image), 15) FROM photos
    """

def solarize(image: _First, threshold: IntoExpr) -> Expr:
    """Inverts samples at or above a threshold.

    Args:
        image: A decoded image [H, W, C] of u8, f16 or f32.
        threshold: 0 to 255 for u8 images, 0 to 1 for floats.

    Returns:
        An image of the same type.

    Counterpart: torchvision v2.functional.solarize: equal.

    In SQL:
        SELECT solarize(decode_image(image), 128) FROM photos
    """

def to_chw(image: _First) -> Expr:
    """Lays an image out as a plane per channel, as PyTorch's layers read it.

    Args:
        image: A decoded image [H, W, C].

    Returns:
        The image as [C, H, W].

    Counterpart: Tensor.permute(2, 0, 1).contiguous(): equal.

    In SQL:
        SELECT to_chw(normalize(resize(decode_image(image), 224, 224), 'imagenet')) FROM photos
    """

def to_float(image: _First, type: IntoExpr = None) -> Expr:
    """Makes samples floats; bytes are divided by 255.

    Args:
        image: A decoded image, [H, W, C] or [C, H, W].
        type: 'f32' (default) or 'f16'.

    Returns:
        A float image of the same size; bytes come to lie in 0 to 1.

    Counterpart: torchvision v2.ToDtype(torch.float32, scale=True): equal; 'f16' rounds that.

    In SQL:
        SELECT to_float(decode_image(image), 'f16') FROM photos
    """

def vflip(image: _First) -> Expr:
    """Mirrors top and bottom.

    Args:
        image: A decoded image [H, W, C] of u8, f16 or f32.

    Returns:
        The mirrored image.

    Counterpart: torchvision v2.functional.vertical_flip: equal.

    In SQL:
        SELECT vflip(decode_image(image)) FROM photos
    """
