/// @file check_results.h — checks that results are right.  Quick, for sanitizer builds and fresh installations.
#pragma once

namespace hvd::bench {

/// Every operation with every dtype and reduction on a few sizes.  Returns the number of wrong results on this rank.
int check(int rank, int size);

}  // namespace hvd::bench
