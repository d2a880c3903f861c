"""Shared links of the second simulator: fair shares found by filling up, one transfer after another."""

from fractions import Fraction

MILLI, NANO = 1000, 10**9


def rate_of(bytes_s):
    """Whole thousandths of a byte per second."""
    return max(1, round(min(bytes_s, 1e11) * MILLI))


def in_microseconds(left, rate):
    """Time of a transfer, to the nearest microsecond (a half goes up), at least one."""
    return max(1, int(Fraction(left, rate) + Fraction(1, 2)))


class Pipe:
    """One direction of a link: who sends, how much is left, and since when at which rate."""

    def __init__(self, megabytes_s):
        self.whole, self.sending, self.version = rate_of(megabytes_s * 1e6), {}, 0

    def change(self, now, joins=None, leaves=()):
        """Let transfers begin or end; when the next one ends, or None."""
        for each in self.sending.values():
            each["left"] = max(0, each["left"] - each["rate"] * (now - each["since"]))
            each["since"] = now
        for key in leaves:
            del self.sending[key]
        if joins is not None:
            key, size, cap = joins
            self.sending[key] = {"left": size * NANO, "cap": min(rate_of(cap), self.whole), "since": now}
        self._share()
        self.version += 1
        for each in self.sending.values():
            each["end"] = now + in_microseconds(each["left"], each["rate"])
        return min((each["end"] for each in self.sending.values()), default=None)

    def _share(self):
        """Shares of the link: small takers get all that they take; the others share the rest evenly."""
        open_, left = dict(self.sending), self.whole
        while open_:
            share = left // len(open_)
            modest = [key for key, each in open_.items() if each["cap"] <= share]
            if not modest:
                for each in open_.values():
                    each["rate"] = max(1, share)
                return
            for key in modest:
                each = open_.pop(key)
                each["rate"] = each["cap"]
                left -= each["cap"]

    def over(self, now):
        """Those whose transfers end now."""
        return sorted(key for key, each in self.sending.items() if each["end"] <= now)

    def alone(self, size, cap):
        """Microseconds of a transfer while nobody else sends."""
        return in_microseconds(size * NANO, min(rate_of(cap), self.whole))
