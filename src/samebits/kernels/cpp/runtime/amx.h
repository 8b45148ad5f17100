#pragma once

namespace samebits {

// Whether this process may use AMX int8 tiles; asks the operating system the first time.
bool enable_amx();

}  // namespace samebits
