// The checks of primitives that the files of instruction sets bring, by name.
#pragma once

bool add_primitives(const char* isa, void (*check)());
void check_primitives(const char* isa);  // prints a line for every primitive of the set
