"""Pictures as windows: shapes, users, and what libraries hand over."""

from types import MappingProxyType

import numpy as np
import pytest

from fedge.datasets.images import from_images, from_partitions
from hhar.errors import HharError
from hhar.windows.window_file import check_windows

GREY = np.arange(10 * 4 * 5, dtype=np.uint8).reshape(10, 4, 5)
LABELS = np.arange(10) % 3


@pytest.mark.parametrize(
    ("images", "shape"),
    [
        (GREY, (1, 4, 5)),
        (GREY[..., None], (1, 4, 5)),
        (GREY[:, None], (1, 4, 5)),
        (np.stack([GREY] * 3, axis=3), (3, 4, 5)),
        (np.stack([GREY] * 3, axis=1), (3, 4, 5)),
        (list(GREY), (1, 4, 5)),
        (GREY / 255.0, (1, 4, 5)),
    ],
    ids=[
        "N H W",
        "one channel last",
        "one channel first",
        "channels last",
        "channels first",
        "list",
        "float64",
    ],
)
def test_shapes(images, shape):
    windows = from_images(images, LABELS, users=5, classes="abc")
    check_windows(windows, "w")
    assert windows.x.shape == (10, *shape)
    grey = windows.x[:, 0] if windows.x.dtype == np.uint8 else np.rint(windows.x[:, 0] * 255)
    assert np.array_equal(grey, GREY)
    assert windows.user.tolist() == [f"user-{k}" for k in range(5) for _ in range(2)]


@pytest.mark.parametrize(("first", "last"), [(3, 3), (3, 1), (1, 3), (1, 1)])
def test_channels_are_first_where_both_fit(first, last):
    images = np.arange(10 * first * 5 * last, dtype=np.uint8).reshape(10, first, 5, last)
    windows = from_images(images, LABELS, users=5, classes="abc")
    assert np.array_equal(windows.x, images)


def test_users_in_blocks_or_by_name():
    """Ten pictures of three users: 0..2, 3..5, 6..9; two of each are the first six."""
    assert np.unique(from_images(GREY, LABELS, users=3).user, return_counts=True)[1].tolist() == [3, 3, 4]
    few = from_images(GREY, LABELS, users=3, per_user=2)
    assert np.array_equal(few.x[:, 0], GREY[:6])
    named = from_images(GREY, LABELS, users=["b", "a"] * 5, per_user=2)
    assert named.user.tolist() == ["b", "a", "b", "a"]
    assert len(set(from_images(GREY, LABELS, users=10).user)) == 10


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"images": GREY[0]}, r"images: must be numbers of shape .* are uint8 \(4, 5\)"),
        ({"images": GREY.astype(str)}, "images: must be numbers"),
        ({"images": np.zeros((10, 4, 5, 7))}, "must have 1 or 3 channels"),
        ({"images": [np.zeros((4, 5)), np.zeros((4, 6))]}, "images: must be of one size, are of 2"),
        ({"labels": LABELS[:4]}, "labels: must be 10 whole numbers"),
        ({"labels": ["a"] * 10}, "labels: must be 10 whole numbers"),
        ({"classes": "ab"}, r"images: y must be from 0 to 1"),
        ({"users": 0}, "users: must be 1 to 10"),
        ({"users": 11}, "users: must be 1 to 10"),
        ({"users": ["a"]}, "users: must be one name a picture"),
        ({"users": 2, "per_user": 6}, "need 2 × 6"),
        ({"per_user": 0}, "per_user: must be at least 1"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_refusals(changes, message):
    with pytest.raises(HharError, match=message):
        from_images(**{"images": GREY, "labels": LABELS, "users": 2, **changes})


def test_tensors_as_torchvision_holds_them():
    """`MNIST.data` and `.targets` are tensors; `CIFAR10.data` an array (N, 32, 32, 3), `.targets` a list."""
    import torch

    windows = from_images(torch.from_numpy(GREY), torch.from_numpy(LABELS), users=2)
    assert np.array_equal(windows.x[:, 0], GREY)


def test_partitions_as_flwr_datasets_makes_them():
    """Real partitions of a real Hugging Face data set of PNGs, two users."""
    datasets = pytest.importorskip("datasets", reason="pip install 'flwr-datasets[vision]'")
    from flwr_datasets.partitioner import IidPartitioner

    features = datasets.Features(
        {"image": datasets.Image(), "label": datasets.ClassLabel(names=["p", "q", "r"])}
    )
    whole = datasets.Dataset.from_dict({"image": list(GREY), "label": LABELS.tolist()}, features=features)
    partitioner = IidPartitioner(num_partitions=2)
    partitioner.dataset = whole
    windows = from_partitions([partitioner.load_partition(k) for k in range(2)])
    check_windows(windows, "w")
    assert windows.classes == ("p", "q", "r")
    assert sorted(windows.user.tolist()) == ["user-0"] * 5 + ["user-1"] * 5
    assert sorted(x.tobytes() for x in windows.x) == sorted(x.tobytes() for x in GREY)
    with pytest.raises(HharError, match="must have a column image or img, have picture, label; name it"):
        from_partitions([whole.rename_column("image", "scan").rename_column("scan", "picture")])
    with pytest.raises(HharError, match="are none"):
        from_partitions([])


@pytest.mark.parametrize(
    "mode", ["1", "L", "RGB", "F", "I", "I;16", "P", "LA", "RGBA", "CMYK", "YCbCr", "HSV", "LAB"]
)
def test_pictures_of_pillow_are_brightness_or_colours_or_refused(mode):
    """Every mode: numbers of a palette, hues and inks are no red, green and blue."""
    Image = pytest.importorskip("PIL.Image")

    pictures = [Image.fromarray(grey) for grey in GREY]
    if mode == "LAB":
        pictures = [Image.merge("LAB", [picture] * 3) for picture in pictures]
    else:
        pictures = [picture.convert(mode) for picture in pictures]
    if mode in ("1", "L", "RGB", "F", "I", "I;16"):
        assert from_images(pictures, LABELS, users=5).x.shape[2:] == (4, 5)
        return
    with pytest.raises(HharError, match=rf"^images: must be grey or RGB, but a picture is {mode}.*convert\("):
        from_images(pictures, LABELS, users=5)


@pytest.mark.parametrize("other", [GREY[0] / 255.0, GREY[0].astype(np.uint16) * 257, GREY[0] > 9])
def test_pictures_of_several_scales_are_refused(other):
    """Half of them would be black."""
    with pytest.raises(
        HharError, match=r"^images: must be of one type of number, are \w+ and \w+, whose scales"
    ):
        from_images([*GREY[:9], other], LABELS, users=5)


@pytest.mark.parametrize("kind", ["float64", "uint16", "bool", "float32", "uint8"])
def test_casts_are_told(kind):
    windows = from_images(GREY.astype(kind), LABELS, users=5)
    assert windows.about == ({} if kind in ("float32", "uint8") else {"cast": f"x from {kind} to float32"})
    assert windows.x.dtype == (np.uint8 if kind == "uint8" else np.float32)


class DataSet:
    """Pairs of a picture and its label, as data sets of PyTorch."""

    def __len__(self):
        return len(GREY)

    def __getitem__(self, at):
        return GREY[at], int(LABELS[at])


class Stream:
    """Likewise, without numbers."""

    def __iter__(self):
        return iter(DataSet())


@pytest.mark.parametrize("data", [DataSet(), Stream(), iter(GREY)])
def test_data_sets_are_refused_with_a_way_to_lists_that_works(data):
    with pytest.raises(HharError, match=r"; make lists of it: images, labels = zip\(\*data\)$"):
        from_images(data, LABELS)
    images, labels = zip(*DataSet(), strict=True)
    assert len(from_images(images, labels, users=5)) == 10


class Part(dict):
    """Columns of a partition, as data sets of Hugging Face have them."""

    column_names = ("image", "label")
    features = MappingProxyType({"label": None})


@pytest.mark.parametrize("kind", [list, np.array, lambda values: np.array(values, dtype=np.int64)])
def test_a_partition_without_pictures_is_refused_by_number(kind):
    """Else its labels of no type make others unfit, or a user is missing in silence."""
    full, empty = Part(image=list(GREY), label=kind(LABELS)), Part(image=[], label=kind([]))
    assert len(from_partitions([full, full])) == 20
    with pytest.raises(
        HharError, match=r"^partitions: must hold pictures, number 1 holds none; leave it out"
    ):
        from_partitions([full, empty])
