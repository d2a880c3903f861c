"""Structure of HHAR in numbers: users, activities, times, and the sampling of each device.

Sources. Bouts, sampling rates, coverage and gaps of the phones' accelerometers were counted from the
11,279,275 labelled rows of `Phones_accelerometer.csv` (2,041 uninterrupted segments). Models, sensors and the
protocol are from Stisen et al. 2015, "Smart Devices are Different", SenSys. Numbers that could not be counted
are inferred and marked as such: the watches' coverage from excerpts and row counts, the S3's gyroscope rate
from the row count of `Phones_gyroscope.csv` (13,932,632 rows although the Samsung Gold has no gyroscope).
"""

from __future__ import annotations

from dataclasses import dataclass

ACTIVITIES = ("bike", "sit", "stairsdown", "stairsup", "stand", "walk")
NULL_LABEL = "null"
USERS = ("a", "b", "c", "d", "e", "f", "g", "h", "i")
AXES = ("x", "y", "z")
SENSORS = ("acc", "gyro")
RAW_COLUMNS = ("Index", "Arrival_Time", "Creation_Time", "x", "y", "z", "User", "Model", "Device", "gt")
RAW_FILES = {
    ("phones", "acc"): "Phones_accelerometer.csv",
    ("phones", "gyro"): "Phones_gyroscope.csv",
    ("watches", "acc"): "Watch_accelerometer.csv",
    ("watches", "gyro"): "Watch_gyroscope.csv",
}
MISSING_PAIRS = (("f", "s3_1"),)  # user × device without any row
MAX_SILENCE_S = 30.0  # a longer silence starts a new recording; the shortest stairs take 12 s
MAX_GAP_S = 1.0  # nothing is interpolated across a longer gap

# Quantiles of the 1,073 gaps over one second in Creation_Time (seconds).
GAP_QUANTILES = ((0.0, 1.0), (0.1, 1.9), (0.25, 3.65), (0.5, 4.57), (0.75, 4.91), (0.9, 5.18), (1.0, 5.35))

# First arrival (epoch ms), then bouts: activity letter, start and duration in seconds.
_LETTERS = {"b": "bike", "i": "sit", "d": "stairsdown", "u": "stairsup", "t": "stand", "w": "walk"}
_BOUTS = {
    "a": (
        1424696633908,
        "t0.0+300.2 i309.9+309.2 w728.6+273.7 u1026.9+13.6 d1040.5+57.9 u1098.4+48.8 d1147.2+50.0 "
        "u1197.3+54.5 "
        "d1251.8+53.6 u1305.4+54.2 d1359.5+52.8 u1412.4+53.9 d1466.2+48.6 b1583.8+299.8",
    ),
    "b": (
        1424784648875,
        "t0.0+315.9 i321.2+308.7 w744.3+329.3 u1099.6+46.7 d1146.3+59.1 u1205.4+59.5 d1265.0+42.8 "
        "u1307.8+47.3 "
        "d1355.1+56.6 u1411.7+58.6 d1470.3+53.4 u1523.7+58.8 d1582.5+54.1 u1636.5+26.7 b1851.7+385.8",
    ),
    "c": (
        1424693577372,
        "t0.0+309.8 i329.6+294.2 w669.0+300.1 d1021.3+41.6 u1062.9+65.5 d1128.3+64.5 u1192.8+67.6 "
        "d1260.4+63.9 "
        "u1324.4+68.4 d1392.8+61.1 u1453.9+63.7 d1517.5+32.2 b1652.1+279.7",
    ),
    "d": (
        1424781676863,
        "t0.0+287.0 i293.9+298.7 w659.2+312.7 u1000.1+41.7 d1041.7+47.3 u1089.0+52.5 d1141.5+42.5 "
        "u1183.9+50.5 "
        "d1234.4+42.6 u1277.0+49.9 d1326.9+45.6 u1372.5+50.6 d1423.0+42.6 u1465.7+23.9 d1489.6+11.8 "
        "b1570.5+256.2",
    ),
    "e": (
        1424787189323,
        "t0.0+310.8 i326.2+296.5 w701.2+323.7 u1064.8+26.0 d1090.8+42.6 u1133.4+50.5 d1183.9+42.6 "
        "u1226.5+48.5 "
        "d1275.0+44.3 u1319.3+46.0 d1365.3+47.3 u1412.6+49.6 d1462.2+48.2 u1510.3+48.2 d1558.6+42.0 "
        "b1926.4+344.9",
    ),
    "f": (
        1424778968295,
        "t0.0+314.2 i323.3+302.5 w708.2+307.4 u1062.6+45.3 d1107.8+59.1 u1166.9+59.9 d1226.8+59.0 "
        "u1285.8+62.3 "
        "d1348.1+57.4 u1405.5+63.9 d1469.3+57.6 u1526.9+63.8 d1590.7+42.6 b1834.3+369.8",
    ),
    "g": (
        1424686733389,
        "t0.0+343.4 i379.0+311.4 w851.3+342.5 u1250.2+21.4 d1271.7+77.8 u1349.4+80.6 d1430.1+79.7 "
        "u1509.8+69.4 "
        "d1579.2+77.2 u1656.4+76.6 d1733.0+38.9 b2007.7+303.6",
    ),
    "h": (
        1424699114132,
        "i0.0+308.2 t315.4+311.7 w710.6+268.3 u1015.1+13.5 d1028.6+48.5 u1077.1+50.2 d1127.3+48.9 "
        "u1176.2+52.8 "
        "d1229.1+51.1 u1280.1+52.1 d1332.2+49.7 u1382.0+50.5 d1432.5+49.2 u1481.7+51.0 d1532.7+49.8 "
        "b1639.0+275.7",
    ),
    "i": (
        1424776359595,
        "t0.0+301.1 i323.8+297.0 w704.1+312.2 u1054.3+52.0 d1106.4+69.7 u1176.1+76.4 d1252.4+71.7 "
        "u1324.1+74.8 "
        "d1398.9+72.4 u1471.3+75.6 d1546.9+69.1 u1616.0+34.9 d1650.9+15.7 b1850.9+342.9",
    ),
}


@dataclass(frozen=True)
class Bout:
    """One activity of one user from start to end; `start_s` is relative to the user's first arrival."""

    activity: str
    start_s: float
    duration_s: float


@dataclass(frozen=True)
class DeviceFacts:
    """Sampling of one phone or watch.

    `acc_hz` and `gyro_hz` are nominal rates (None: no such sensor). `coverage` is samples delivered ÷ (rate ×
    bout length), per activity in the order of `ACTIVITIES`; above 1 the device inserts extra samples while it
    moves. `gaps_per_min` counts gaps over one second in Creation_Time. `clock` is "epoch" (Creation_Time is
    epoch time and shows gaps) or "boot" (time since boot at epoch second `boot_epoch_s`; it stands still
    while samples are lost, so losses leave no gap). `burst_ms` is the interval at which samples arrive
    together.
    """

    name: str
    model: str
    acc_hz: float
    gyro_hz: float | None
    coverage: tuple[float, ...]
    gaps_per_min: tuple[float, ...]
    clock: str
    boot_epoch_s: float
    burst_ms: int
    presence: tuple[float, ...] = (1.0,) * 6  # share of the bouts recorded by the device

    @property
    def is_watch(self) -> bool:
        """Whether the device is worn on the wrist; phones are carried at the waist."""
        return self.model in ("gear", "lgwatch")


_NONE = (0.0,) * 6
#               bike  sit   down  up    stand walk
_NEXUS4_1 = (0.70, 0.93, 0.78, 0.86, 0.80, 0.96)
_NEXUS4_2 = (0.82, 0.89, 0.76, 0.86, 0.84, 0.97)
_S3 = (0.775, 0.935, 0.78, 0.87, 0.825, 0.955)
_S3MINI_1 = (0.71, 0.93, 0.73, 0.86, 0.83, 0.94)
_S3MINI_2 = (0.02, 0.05, 0.21, 0.25, 0.04, 0.15)
_GOLD = (1.27, 0.985, 1.28, 1.27, 0.985, 1.28)

DEVICES: dict[str, DeviceFacts] = {
    device.name: device
    for device in (
        DeviceFacts(
            "nexus4_1",
            "nexus4",
            198.6,
            198.6,
            _NEXUS4_1,
            (4.24, 0.84, 2.93, 1.69, 2.47, 0.52),
            "epoch",
            0.0,
            10,
        ),
        DeviceFacts(
            "nexus4_2",
            "nexus4",
            198.6,
            198.6,
            _NEXUS4_2,
            (2.67, 1.30, 3.10, 1.81, 1.93, 0.39),
            "epoch",
            0.0,
            10,
        ),
        # 197.6 Hz for the gyroscope: inferred, see above
        DeviceFacts(
            "s3_1", "s3", 98.9, 197.6, _S3, (0.0, 0.02, 0.03, 0.03, 0.02, 0.0), "boot", 1424643534.0, 10
        ),
        DeviceFacts(
            "s3_2", "s3", 98.8, 197.6, _S3, (0.02, 0.0, 0.0, 0.02, 0.0, 0.0), "boot", 1424421000.0, 10
        ),
        DeviceFacts(
            "s3mini_1",
            "s3mini",
            99.9,
            99.9,
            _S3MINI_1,
            (0.0, 0.02, 0.05, 0.0, 0.06, 0.0),
            "boot",
            1424681375.0,
            10,
        ),
        DeviceFacts(
            "s3mini_2",
            "s3mini",
            73.6,
            73.6,
            _S3MINI_2,
            _NONE,
            "boot",
            1424681380.0,
            10,
            (0.89, 0.78, 0.49, 0.49, 0.56, 0.67),
        ),
        DeviceFacts("samsungold_1", "samsungold", 50.3, None, _GOLD, _NONE, "boot", 1424416272.0, 20),
        DeviceFacts("samsungold_2", "samsungold", 50.3, None, _GOLD, _NONE, "boot", 1424416300.0, 20),
        # coverage of the watches: inferred, see above
        DeviceFacts("gear_1", "gear", 100.4, 100.4, (0.19,) * 6, (1.7,) * 6, "boot", 1424668718.0, 250),
        DeviceFacts("gear_2", "gear", 100.4, 100.4, (0.19,) * 6, (1.7,) * 6, "boot", 1424668650.0, 250),
        DeviceFacts("lgwatch_1", "lgwatch", 200.0, 200.0, (0.39,) * 6, (1.0,) * 6, "boot", 1424660100.0, 250),
        DeviceFacts("lgwatch_2", "lgwatch", 200.0, 200.0, (0.39,) * 6, (1.0,) * 6, "boot", 1424660200.0, 250),
    )
}
PHONES = tuple(name for name, device in DEVICES.items() if not device.is_watch)
WATCHES = tuple(name for name, device in DEVICES.items() if device.is_watch)


def device_names(devices: str) -> tuple[str, ...]:
    """Names of the devices in a group: "phones", "watches" or "all"."""
    return {"phones": PHONES, "watches": WATCHES, "all": PHONES + WATCHES}[devices]


def user_name(index: int) -> str:
    """Name of user `index`, the same for any number of users: a … i as in HHAR, j … z, then u026, u027, …"""
    return chr(ord("a") + index) if index < 26 else f"u{index:03d}"


def first_arrival_ms(index: int) -> int:
    """Epoch ms at which user `index` starts; users past the ninth repeat the days of the first nine."""
    return _BOUTS[USERS[index % len(USERS)]][0] + 7 * 86_400_000 * (index // len(USERS))


def bouts_of(index: int) -> tuple[Bout, ...]:
    """The bouts of user `index` in time order; users past the ninth repeat the protocol of the first nine."""
    table = _BOUTS[USERS[index % len(USERS)]][1]
    bouts = []
    for entry in table.split():
        start, duration = entry[1:].split("+")
        bouts.append(Bout(_LETTERS[entry[0]], float(start), float(duration)))
    return tuple(bouts)
