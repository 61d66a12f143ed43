"""tf.data: the crop is decoded alone (`decode_and_crop_jpeg`) and then resized, without antialiasing."""

import glob

import tensorflow as tf

from peers.chains import (BLUR, BOX, BRIGHTNESS, FIXED_SIGMA, GRAY_MEAN, GRAY_STD, JITTER, MEAN, R1_SIZE, SHORTEST,
                          SIGMA, SIZE, STD, THUMBNAIL, THUMBNAIL_CROP)
from peers.tf_crop import cropped

VERSIONS = {"tensorflow-cpu": tf.__version__}


def normalized(image):
    return (image / 255.0 - MEAN) / STD


def fixed_crop(file, size):
    return tf.image.flip_left_right(tf.image.resize(tf.image.decode_and_crop_jpeg(file, BOX, channels=3), (size, size)))


def blurred(image, sigma):
    """Blurs a gray image as two passes of a convolution, mirrored at the edges."""
    places = tf.range(BLUR, dtype=tf.float32) - BLUR // 2
    kernel = tf.nn.softmax(-0.5 * (places / sigma) ** 2)
    half = BLUR // 2
    image = tf.pad(image, [[half, half], [half, half], [0, 0]], "REFLECT")[tf.newaxis]
    image = tf.nn.conv2d(image, tf.reshape(kernel, [BLUR, 1, 1, 1]), 1, "VALID")
    return tf.nn.conv2d(image, tf.reshape(kernel, [1, BLUR, 1, 1]), 1, "VALID")[0]


def r1(file):
    # The order of the four changes is fixed here, which is less work than a random one.
    image = cropped(file, R1_SIZE) / 255.0
    image = tf.clip_by_value(image * tf.random.uniform([], 1 - JITTER, 1 + JITTER), 0, 1)
    image = tf.clip_by_value(tf.image.random_contrast(image, 1 - JITTER, 1 + JITTER), 0, 1)
    image = tf.clip_by_value(tf.image.random_saturation(image, 1 - JITTER, 1 + JITTER), 0, 1)
    image = tf.image.rgb_to_grayscale(tf.image.random_hue(image, JITTER))
    return (blurred(image, tf.random.uniform([], *SIGMA)) - GRAY_MEAN) / GRAY_STD


def fixed_r1(file):
    image = tf.clip_by_value(fixed_crop(file, R1_SIZE) / 255.0 * BRIGHTNESS, 0, 1)
    return (blurred(tf.image.rgb_to_grayscale(image), FIXED_SIGMA) - GRAY_MEAN) / GRAY_STD


def r3(file):
    shape = tf.image.extract_jpeg_shape(file)
    side = tf.cast(tf.cast(tf.minimum(shape[0], shape[1]), tf.float32) * (SIZE / SHORTEST), tf.int32)
    box = tf.stack([(shape[0] - side) // 2, (shape[1] - side) // 2, side, side])
    return normalized(tf.image.resize(tf.image.decode_and_crop_jpeg(file, box, channels=3), (SIZE, SIZE)))


def decode(file):
    return tf.image.decode_jpeg(file, channels=3)


def resize(file):
    return tf.cast(tf.round(tf.image.resize(decode(file), (SIZE, SIZE))), tf.uint8)


def small(file):
    begin = (THUMBNAIL - THUMBNAIL_CROP) // 2
    image = tf.image.decode_and_crop_jpeg(file, [begin, begin, THUMBNAIL_CROP, THUMBNAIL_CROP], channels=3)
    return tf.ensure_shape(image, [THUMBNAIL_CROP, THUMBNAIL_CROP, 3])


#: The function of each chain, and that with fixed values for random ones.
CHAINS = {
    "r1": (r1, fixed_r1),
    "r3": (r3, r3),
    "r4": (lambda file: normalized(cropped(file, SIZE)), lambda file: normalized(fixed_crop(file, SIZE))),
    "resize": (resize,) * 2,
    "decode": (decode,) * 2,
    "small": (small,) * 2,
}


def batches(workload, data, threads, is_fixed):
    chain = CHAINS[workload.chain][is_fixed]
    options = tf.data.Options()
    options.threading.private_threadpool_size = threads
    options.threading.max_intra_op_parallelism = 1
    calls = 1 if threads == 1 else tf.data.AUTOTUNE
    dataset = tf.data.Dataset.from_tensor_slices(sorted(glob.glob(f"{data}/*")))
    dataset = dataset.map(lambda path: chain(tf.io.read_file(path)), num_parallel_calls=calls)
    if workload.chain != "decode":
        dataset = dataset.batch(workload.batch)
    dataset = dataset.prefetch(tf.data.AUTOTUNE).with_options(options)

    def epoch():
        for batch in dataset:
            yield [batch] if workload.chain == "decode" else batch

    return epoch
