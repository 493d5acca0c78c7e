"""The sources that there are, each with the pins of its files."""

from __future__ import annotations

from functools import partial

from fedrepro.data import femnist, pictures
from fedrepro.data.sources.downloads import download_cifar10, download_idx
from fedrepro.data.sources.kinds import File, Source
from fedrepro.data.sources.readers import (
    nothing,
    read_cifar10,
    read_digits,
    read_femnist,
    read_idx,
    read_parquet,
    read_pictures,
)


def pins(listing: str) -> tuple[File, ...]:
    """Lines of sha256, bytes, path."""
    rows = (line.split() for line in listing.strip().splitlines())
    return tuple(File(sha256, int(size), path) for sha256, size, path in rows)


MNIST_FILES = pins("""
    ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db 47040016 MNIST/raw/train-images-idx3-ubyte
    65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5    60008 MNIST/raw/train-labels-idx1-ubyte
    0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7  7840016 MNIST/raw/t10k-images-idx3-ubyte
    ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2    10008 MNIST/raw/t10k-labels-idx1-ubyte
""")
FASHION_FILES = pins("""
    c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888 47040016 FashionMNIST/raw/train-images-idx3-ubyte
    bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9    60008 FashionMNIST/raw/train-labels-idx1-ubyte
    5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b  7840016 FashionMNIST/raw/t10k-images-idx3-ubyte
    0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34    10008 FashionMNIST/raw/t10k-labels-idx1-ubyte
""")


CIFAR10_FILES = pins("""
    6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce 170498071 cifar-10-python.tar.gz
""")
CIFAR10_JPEG_FILES = pins("""
    0fc125f78e80c161cbeb2820b256628ff5add1670dab4367392944f207260f1e 15480407 cifar10-jpeg/train.parquet
    468f3e927cdf535078d970d84e7c7f5a0a9de6bc4f6815939afc732c8f8e749e  3093982 cifar10-jpeg/test.parquet
""")


PACS_112PX_FILES = pins("""
    8ad980bf184b3ccdb799c5b94e2ccd608824558989187f09a5f950ac45ba9040 35883574 pacs-112px/train.parquet
""")
PACS_DOMAINS = ("photo", "art_painting", "cartoon", "sketch")
OFFICEHOME_DOMAINS = ("art", "clipart", "product", "real_world")
CINIC10_SPLITS = ("train", "valid", "test")


DIGITS_FILES = pins("""
    61ecbfddb6c4a4249fe06635b89d5964a942dce29463cdef587de73da6162793  1176000 digits/train-images
    dea473bd09d64c36e6f276a4d06f70ff75aa81ec4897fa9c0e856502ac10133e     1500 digits/train-labels
    4c5a186df817057edb0426720c45abcfa58ed0e0576119064357ce6fcd7fc819   232848 digits/test-images
    6807e92daae064eb73f59d136ab51cd3d4ef560078c14621d07f05b8538f2651      297 digits/test-labels
""")


SOURCES = {
    source.name: source
    for source in (
        Source(
            name="mnist",
            origin="the MNIST database of handwritten digits (LeCun, Cortes, Burges), through torchvision",
            licence="CC BY-SA 3.0",
            files=MNIST_FILES,
            train=60_000,
            test=10_000,
            classes=10,
            read=read_idx,
            download=download_idx,
        ),
        Source(
            name="fashion-mnist",
            origin="Fashion-MNIST (Xiao, Rasul, Vollgraf), through torchvision",
            licence="MIT",
            files=FASHION_FILES,
            train=60_000,
            test=10_000,
            classes=10,
            read=read_idx,
            download=download_idx,
        ),
        Source(
            name="cifar10",
            origin="CIFAR-10 (Krizhevsky), the archive of the Python version, through torchvision",
            licence="none stated",
            files=CIFAR10_FILES,
            train=50_000,
            test=10_000,
            classes=10,
            read=read_cifar10,
            download=download_cifar10,
        ),
        Source(
            name="cifar10-jpeg",
            origin=(
                "CIFAR-10 (Krizhevsky), images re-encoded once as JPEG of quality about 75, rows shuffled, as parquet"
            ),
            licence="none stated",
            files=CIFAR10_JPEG_FILES,
            train=50_000,
            test=10_000,
            classes=10,
            read=read_parquet,
            substitute="cifar10 (jpeg)",
        ),
        Source(
            name="femnist",
            origin="the digits of FEMNIST (LEAF, Caldas et al., from NIST Special Database 19), by writer",
            licence="that of the copy that is used",
            files=(),
            train=None,
            test=None,
            classes=femnist.CLASSES,
            read=read_femnist,
            find=femnist.find,
            sought=femnist.SOUGHT,
        ),
        Source(
            name="pacs",
            origin="PACS (Li et al. 2017), 9,991 pictures of 227 pixels a side in four domains",
            licence="none stated",
            files=(),
            train=9_991,
            test=0,
            classes=7,
            read=read_pictures,
            find=partial(pictures.find, folder="pacs"),
            sought=pictures.sought("pacs"),
            layout=pictures.LAYOUT,
            domains=PACS_DOMAINS,
            size=224,
        ),
        Source(
            name="pacs-112px",
            origin="PACS (Li et al. 2017), resized once from 227 to 112 pixels a side, JPEG of quality 88, as parquet",
            licence="none stated",
            files=PACS_112PX_FILES,
            train=9_991,
            test=0,
            classes=7,
            read=read_pictures,
            substitute="pacs (112 px)",
            domains=PACS_DOMAINS,
            size=112,
        ),
        Source(
            name="officehome",
            origin="Office-Home (Venkateswara et al. 2017), 15,588 pictures of various sizes in four domains",
            licence="that of its authors: for academic research",
            files=(),
            train=15_588,
            test=0,
            classes=65,
            read=read_pictures,
            find=partial(pictures.find, folder="officehome"),
            sought=pictures.sought("officehome"),
            layout=pictures.LAYOUT,
            domains=OFFICEHOME_DOMAINS,
            size=224,
        ),
        Source(
            name="cinic-10",
            origin="CINIC-10 (Darlow et al. 2018), CIFAR-10 with small pictures of ImageNet, its three splits together",
            licence="CC BY 4.0",
            files=(),
            train=270_000,
            test=0,
            classes=10,
            read=read_pictures,
            find=partial(pictures.find, folder="cinic-10"),
            sought=(
                "cinic-10/{train,valid,test}/<class>/ with .png files or cinic-10/*.parquet (Hugging Face's "
                "layout: train*, valid* and test* with the columns image and label)"
            ),
            layout=(
                "its folders train, valid and test, or parquet files with the columns image and label named after them"
            ),
            domains=CINIC10_SPLITS,
        ),
        Source(
            name="digits",
            origin=(
                "Optical Recognition of Handwritten Digits (Alpaydin, Kaynak), the 1,797 embedded in scikit-learn: "
                "8x8 upsampled to 28x28, bilinear; 1,500 train and 297 test by a fixed permutation"
            ),
            licence="CC BY 4.0",
            files=DIGITS_FILES,
            train=1_500,
            test=297,
            classes=10,
            read=read_digits,
            embedded=True,
            substitute="digits (8x8)",
        ),
        Source(
            name="drawn",
            origin="random numbers, drawn when a dataset is made",
            licence="none needed",
            files=(),
            train=0,
            test=0,
            classes=0,
            read=nothing,
            embedded=True,
        ),
    )
}
