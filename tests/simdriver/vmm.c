#include "sim.h"
void vmm_set_up(void)
{
}
