package asp.plugin.worker.types;

import java.lang.reflect.AnnotatedParameterizedType;
import java.lang.reflect.AnnotatedType;
import java.lang.reflect.AnnotatedWildcardType;
import java.lang.reflect.ParameterizedType;
import java.lang.reflect.Type;
import java.lang.reflect.TypeVariable;
import java.util.HashMap;
import java.util.Map;

/** A type as it is written, with its annotations, and what the variables in it stand for. */
record Bound(AnnotatedType written, Map<TypeVariable<?>, Bound> variables) {
    /** Returns what a variable or a wildcard stands for, itself for other types, null where nothing says. */
    Bound resolved() {
        if (written.getType() instanceof TypeVariable<?> variable) {
            Bound meant = variables.get(variable);
            return meant == null ? null : meant.resolved();
        }
        if (written instanceof AnnotatedWildcardType wildcard) {
            return new Bound(wildcard.getAnnotatedUpperBounds()[0], variables).resolved();
        }
        return this;
    }

    /** Returns the class without its parameters, null for an array of a generic type. */
    Class<?> raw() {
        Type type = written.getType();
        Type raw = type instanceof ParameterizedType generic ? generic.getRawType() : type;
        return raw instanceof Class<?> found ? found : null;
    }

    /** Returns the parameter at `index`, null where the type is written without. */
    Bound parameter(int index) {
        return written instanceof AnnotatedParameterizedType generic
                ? new Bound(generic.getAnnotatedActualTypeArguments()[index], variables)
                : null;
    }

    /** Returns what the variables of this type's class stand for. */
    Map<TypeVariable<?>, Bound> inside() {
        Map<TypeVariable<?>, Bound> inner = new HashMap<>();
        TypeVariable<?>[] names = raw().getTypeParameters();
        for (int i = 0; i < names.length; i++) {
            Bound parameter = parameter(i);
            if (parameter != null) {
                inner.put(names[i], parameter);
            }
        }
        return inner;
    }

    /** Returns the type in words, with what its variables stand for: `Page<T>` within `Book<String>` is `Page<String>`. */
    String spelled() {
        if (raw() == null) {
            return written.getType().getTypeName();
        }
        StringBuilder spelled = new StringBuilder(raw().getTypeName());
        for (int i = 0; i < raw().getTypeParameters().length; i++) {
            Bound parameter = parameter(i) == null ? null : parameter(i).resolved();
            spelled.append(' ').append(parameter == null ? "?" : parameter.spelled()).append(';');
        }
        return spelled.toString();
    }

    /** Returns `wanted` as `type`, or one of those above it, implements it; null where it does not. */
    static Bound implemented(Class<?> type, Class<?> wanted) {
        return above(type, Map.of(), wanted);
    }

    private static Bound above(Class<?> type, Map<TypeVariable<?>, Bound> variables, Class<?> wanted) {
        for (AnnotatedType written : type.getAnnotatedInterfaces()) {
            Bound found = found(new Bound(written, variables), wanted);
            if (found != null) {
                return found;
            }
        }
        AnnotatedType parent = type.getAnnotatedSuperclass();
        return parent == null ? null : found(new Bound(parent, variables), wanted);
    }

    private static Bound found(Bound bound, Class<?> wanted) {
        return bound.raw() == wanted ? bound : above(bound.raw(), bound.inside(), wanted);
    }
}
