package asp.plugin;

import java.lang.annotation.ElementType;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;

/**
 * What the schema says of a record's component, or of the items of a list ({@code List<@Property(min = 1) Long>}), beside
 * its type.
 */
@Retention(RetentionPolicy.RUNTIME)
@Target({ElementType.RECORD_COMPONENT, ElementType.TYPE_USE})
public @interface Property {
    /** What it means, for the people and models that fill it in. */
    String description() default "";

    /** The smallest number, the shortest text, the fewest items. */
    double min() default Double.NEGATIVE_INFINITY;

    /** The largest number, the longest text, the most items. */
    double max() default Double.POSITIVE_INFINITY;

    /** A regular expression that a text fits, as JSON Schema has it: anywhere in it, unless anchored. */
    String pattern() default "";

    /** What is taken where it is left out: a text as it is, anything else as JSON. At most one. */
    String[] defaultValue() default {};
}
