# What Doxygen is to read of a header in place of what stands there.
# The comment at its head is the file's, less the project's name; a name such as vDNN stays as it is.
1s|^// delta: ([a-z])([a-z ])|/// @file\n/// \u\1\2|
1s|^// delta: |/// @file\n/// |
1s|^/\* delta: ([a-z])|/** @file\n * \u\1|
2,/^#pragma/s|^//( .*)?$|///\1|
# A sentence does not end there.
s|^(///.* et al)\. |\1.\\ |
s|(\n/// .* et al)\. |\1.\\ |
# What a docstring indents is code: Markdown asks for four blanks more than the text has.
s|^( *)///   |\1///     |
# Comments of C, before what they are of and behind it.
s|^( *)/\* |\1/** |
s|([;,]\|= [0-9]+) +/\* |\1 /**< |
s|^ \*   | *      |
