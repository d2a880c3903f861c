// Kernels that multiply by AMX's tiles, where the processor has them and the system allows them.
#pragma once
#include "kernels.h"

namespace fedge {

// `bf16`: factors are rounded to bf16; else results are as exact as those of the other kernels. Null: not here.
const Kernels* amx_kernels(bool bf16);

}  // namespace fedge
