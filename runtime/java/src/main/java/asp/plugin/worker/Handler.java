package asp.plugin.worker;

import asp.plugin.Arguments;
import asp.plugin.Context;

/** What a call runs: the plugin's method, whatever its kind. */
@FunctionalInterface
interface Handler {
    Object run(Arguments arguments, Context context) throws Exception;
}
