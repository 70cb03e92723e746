// half_end.h - forget what half_type.h and half_functions.h were told, so that the next type can.
#undef MD_WORD
#undef MD_HALF
#undef MD_HALF2
#undef MD_OTHER
#undef MD_ROUND
#undef MD_WIDEN
#undef MD_PASTE_
#undef MD_PASTE
#undef MD_NAMED
#undef MD_RAW
#undef MD_RAW2
#undef MD_MEMBER
