"""Tiny data sets in the form in which the real ones are published: names, headers, separators and quirks."""

import gzip
import struct

import numpy as np

MOTIONSENSE_HEADER = (
    ",attitude.roll,attitude.pitch,attitude.yaw,gravity.x,gravity.y,gravity.z,rotationRate.x,rotationRate.y,"
    "rotationRate.z,userAcceleration.x,userAcceleration.y,userAcceleration.z"
)


def write_motionsense(folder, people=(1, 2), trials=("dws_1", "dws_11", "sit_5"), rows=300, end="\n"):
    """Write trials: row n of trial t of person p has gravity.x p, userAcceleration.x n, rotationRate.z t."""
    for trial in trials:
        for person in people:
            path = folder / "A_DeviceMotion_data" / trial / f"sub_{person}.csv"
            path.parent.mkdir(parents=True, exist_ok=True)
            lines = [MOTIONSENSE_HEADER]
            for row in range(rows):
                number = int(trial.split("_")[1])
                lines.append(f"{row},0.1,-0.2,0.3,{person},0.5,0.25,0.0,0.0,{number},{row},0.0,-0.25")
            path.write_text(end.join(lines) + end)


def write_uci_har(folder, parts, gap=()):
    """Write windows of 128 samples that overlap by half.

    Args:
        folder: in which "UCI HAR Dataset" is made.
        parts: "train" or "test" → rows of (person, label 1..6), in order of time; sample s of signal k
            is s / 100 + k.
        gap: rows before which half a window is missing.
    """
    for part, rows in parts.items():
        place = folder / "UCI HAR Dataset" / part
        (place / "Inertial Signals").mkdir(parents=True)
        starts = np.cumsum([0, *(64 + 64 * (row in gap) for row in range(1, len(rows)))])
        names = [f"{signal}_{axis}" for signal in ("total_acc", "body_gyro", "body_acc") for axis in "xyz"]
        for k, name in enumerate(names):
            lines = [
                "".join(
                    f" {(start + s) / 100 + k: .7e}".replace("e+", "e+0").replace("e-", "e-0")
                    for s in range(128)
                )
                for start in starts
            ]
            (place / "Inertial Signals" / f"{name}_{part}.txt").write_text("\n".join(lines) + "\n")
        (place / f"subject_{part}.txt").write_text("".join(f"{person}\n" for person, _ in rows))
        (place / f"y_{part}.txt").write_text("".join(f"{label}\n" for _, label in rows))
        (place / f"X_{part}.txt").write_text("")


def write_hapt(folder, labels, samples=700):
    """Write raw recordings: labels are rows of (experiment, person, label 1..12, first sample, last)."""
    place = folder / "RawData"
    place.mkdir(parents=True)
    (place / "labels.txt").write_text("".join(" ".join(map(str, row)) + "\n" for row in labels))
    for experiment, person in sorted({row[:2] for row in labels}):
        for kind, sign in (("acc", 1), ("gyro", -1)):
            lines = [f"{sign * s} {sign * s / 10} {experiment}" for s in range(1, samples + 1)]
            name = f"{kind}_exp{experiment:02d}_user{person:02d}.txt"
            (place / name).write_text("\n".join(lines) + "\n")


def wisdm_record(person, activity, number, x=None, start_ns=49_105_962_326_000):
    """One record as it is published, of sample `number` of a recording at 20 Hz."""
    value = number / 10 if x is None else x
    return f"{person},{activity},{start_ns + number * 50_000_000},{value},9.5,0.50395286;"


def write_wisdm(folder, records, name="WISDM_ar_v1.1_raw.txt", end="\n"):
    """Write records, one a line."""
    place = folder / "WISDM_ar_v1.1"
    place.mkdir(parents=True, exist_ok=True)
    (place / name).write_bytes((end.join(records) + end).encode())


def pamap2_row(time_s, activity, lost=(), heart="NaN"):
    """One row of 54 columns; from 3 on column c holds c + time, or NaN where it was lost."""
    places = {"hand": range(3, 20), "chest": range(20, 37), "ankle": range(37, 54)}
    gone = {c for place in lost for c in places[place]}
    sensors = ["NaN" if c in gone else f"{c + time_s:.5g}" for c in range(3, 54)]
    return " ".join([f"{time_s:.2f}", str(activity), heart, *sensors])


def write_pamap2(folder, person, rows, under="Protocol"):
    """Write one person's rows."""
    place = folder / "PAMAP2_Dataset" / under
    place.mkdir(parents=True, exist_ok=True)
    (place / f"subject{person}.dat").write_text("\n".join(rows) + "\n")


def write_mnist(folder, images, labels, part="train", packed=True):
    """Write the two IDX files of one part."""
    folder.mkdir(parents=True, exist_ok=True)
    for kind, array in (("images-idx3", np.asarray(images)), ("labels-idx1", np.asarray(labels))):
        lengths = np.array(array.shape, ">i4").tobytes()
        content = bytes([0, 0, 8, array.ndim]) + lengths + array.astype(np.uint8).tobytes()
        path = folder / f"{part}-{kind}-ubyte{'.gz' if packed else ''}"
        path.write_bytes(gzip.compress(content) if packed else content)


def write_cifar10(folder, images, labels, name="data_batch_1"):
    """Write one batch in the binary form; images (N, 3, 32, 32)."""
    place = folder / "cifar-10-batches-bin"
    place.mkdir(parents=True, exist_ok=True)
    rows = np.concatenate([np.asarray(labels)[:, None], np.asarray(images).reshape(len(labels), -1)], axis=1)
    (place / f"{name}.bin").write_bytes(rows.astype(np.uint8).tobytes())


def python_2_batch(images, labels):
    """One batch as Python 2 pickled it: protocol 2, text as bytes, `numpy.core.multiarray`.

    Written opcode by opcode, because Python 3 pickles otherwise.
    """
    pixels = np.asarray(images, np.uint8).reshape(len(labels), -1)

    def text(content):  # BINSTRING, SHORT_BINSTRING
        small = len(content) < 256
        return (b"U" + bytes([len(content)]) if small else b"T" + struct.pack("<i", len(content))) + content

    def number(value):  # BININT
        return b"J" + struct.pack("<i", value)

    dtype = b"cnumpy\ndtype\n" + text(b"u1") + number(0) + number(1) + b"\x87R"
    dtype += b"(" + number(3) + text(b"|") + b"NNN" + number(-1) + number(-1) + number(0) + b"tb"
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\n" + b"cnumpy\nndarray\n" + number(0) + b"\x85" + text(b"b")
    )
    shape = number(pixels.shape[0]) + number(pixels.shape[1]) + b"\x86"
    array += b"\x87R(" + number(1) + shape + dtype + b"\x89" + text(pixels.tobytes()) + b"tb"
    items = text(b"data") + array + text(b"labels") + b"](" + b"".join(map(number, labels)) + b"e"
    items += text(b"batch_label") + text(b"training batch 1 of 5")
    return b"\x80\x02}(" + items + b"u."
