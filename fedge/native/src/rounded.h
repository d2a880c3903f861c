// Kernels whose products take factors rounded to bf16, without instructions for it.
#pragma once
#include "kernels.h"

namespace fedge {

// Those that belong to exact ones; null where there are none.
const Kernels* rounded_kernels(const Kernels* exact);

}  // namespace fedge
