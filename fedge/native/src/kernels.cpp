// Compiled once per instruction set, with -DFEDGE_ISA=name and the compiler's options for it (fedge/native/build.py).
#include "kernels.h"

#include "cells.h"
#include "descent.h"
#include "image.h"
#include "norm.h"
#include "peak.h"
#include "pointwise.h"
#include "pool.h"
#include "product.h"
#include "rows.h"
#include "vector.h"

#define FEDGE_JOINED(a, b) a##b
#define FEDGE_NAMED(a, b) FEDGE_JOINED(a, b)
#define FEDGE_TEXT_OF(a) #a
#define FEDGE_TEXT(a) FEDGE_TEXT_OF(a)

namespace fedge {

extern const Kernels FEDGE_NAMED(kernels_, FEDGE_ISA) = {
    FEDGE_TEXT(FEDGE_ISA),     FEDGE_ISA::W,           FEDGE_ISA::product,    FEDGE_ISA::column_sums,
    FEDGE_ISA::column_sums_of,
    FEDGE_ISA::gather,         FEDGE_ISA::relu_forward, FEDGE_ISA::relu_back, FEDGE_ISA::gelu,
    FEDGE_ISA::gelu_back,      FEDGE_ISA::add_to,      FEDGE_ISA::drop,       FEDGE_ISA::max_pool,
    FEDGE_ISA::max_pool_back,  FEDGE_ISA::mean_pool,   FEDGE_ISA::mean_pool_back, FEDGE_ISA::mean_all,
    FEDGE_ISA::norm_statistics, FEDGE_ISA::norm_apply, FEDGE_ISA::norm_sums,  FEDGE_ISA::norm_back,
    FEDGE_ISA::squares,        FEDGE_ISA::descend,     FEDGE_ISA::multiply_add,
    FEDGE_ISA::image_columns,  FEDGE_ISA::image_add_columns,
    FEDGE_ISA::image_max_pool, FEDGE_ISA::image_max_pool_back,
    FEDGE_ISA::image_mean_pool, FEDGE_ISA::image_mean_pool_back,
    FEDGE_ISA::curve,          FEDGE_ISA::curve_back,  FEDGE_ISA::row_norm,   FEDGE_ISA::row_norm_back,
    FEDGE_ISA::gru_cell,       FEDGE_ISA::gru_cell_back, FEDGE_ISA::lstm_cell, FEDGE_ISA::lstm_cell_back,
};

}  // namespace fedge
