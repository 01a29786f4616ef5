package samples.factorize;

import java.util.ArrayList;
import java.util.List;

/** The prime factors of one number, found by trial division: slow on purpose for large primes, and so worth cancelling. */
final class Factors {
    /** Divisors between two looks at the stop sign: well under a millisecond. */
    private static final int STEPS = 1 << 15;

    private Factors() {}

    /** Asked now and then; throws to stop. */
    interface StopSign {
        void check();
    }

    /** Returns the factors in ascending order, each as often as it divides. */
    static List<Long> of(long number, StopSign stopSign) {
        List<Long> factors = new ArrayList<>();
        long rest = divideOut(number, 2, factors);
        int steps = 0;
        for (long divisor = 3; divisor * divisor <= rest; divisor += 2) {
            rest = divideOut(rest, divisor, factors);
            if (++steps % STEPS == 0) {
                stopSign.check();
            }
        }
        if (rest > 1) {
            factors.add(rest);
        }
        return factors;
    }

    private static long divideOut(long number, long divisor, List<Long> factors) {
        long rest = number;
        while (rest % divisor == 0) {
            factors.add(divisor);
            rest /= divisor;
        }
        return rest;
    }
}
