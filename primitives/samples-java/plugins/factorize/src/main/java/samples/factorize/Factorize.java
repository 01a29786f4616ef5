package samples.factorize;

import asp.plugin.Answer;
import asp.plugin.Artifact;
import asp.plugin.CancelledException;
import asp.plugin.Context;
import asp.plugin.Property;
import asp.plugin.TypedTool;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.Collectors;

/**
 * Takes numbers apart into primes: asks before it starts on large ones, tells how far it is, keeps a report, and stops
 * within a millisecond when it is cancelled.
 */
public final class Factorize implements TypedTool<Factorize.Input, Factorize.Output> {
    private static final long LARGE = 1_000_000_000_000L;

    record Input(
            @Property(
                            description = "The numbers; up to 2^53 - 1, which every JSON library keeps exact",
                            min = 1,
                            max = 1000)
                    List<@Property(min = 2, max = 9007199254740991L) Long> numbers,
            @Property(description = "Pause after each number", min = 0, max = 1000, defaultValue = "0") int pauseMs) {}

    record Output(
            List<Entry> numbers,
            @Property(description = "How many of the numbers are prime") long primes,
            @Property(description = "Large numbers that were left out") List<Long> skipped,
            @Property(description = "Where the list is as CSV") URI report) {}

    record Entry(
            long number,
            @Property(description = "Prime, ascending, as often as they divide") List<Long> factors) {}

    @Override
    public Output run(Input input, Context context) throws InterruptedException {
        List<Long> skipped = skipped(input.numbers(), context);
        List<Long> wanted =
                input.numbers().stream().filter(number -> !skipped.contains(number)).toList();
        List<Entry> entries = new ArrayList<>();
        for (long number : wanted) {
            context.progress(100.0 * entries.size() / wanted.size(), "at " + number);
            entries.add(new Entry(number, Factors.of(number, () -> stopIfCancelled(context))));
            Thread.sleep(input.pauseMs());
        }
        Artifact about = new Artifact("factors.csv", "csv", "text/csv", "Each number with its prime factors");
        String report = context.artifact(about, csv(entries).getBytes(StandardCharsets.UTF_8));
        context.progress(100, "done");
        long primes = entries.stream().filter(entry -> entry.factors().size() == 1).count();
        return new Output(entries, primes, skipped, URI.create(report));
    }

    /** The large numbers, unless the user wants them taken apart too. */
    private static List<Long> skipped(List<Long> numbers, Context context) {
        List<Long> large = numbers.stream().filter(number -> number > LARGE).distinct().toList();
        if (large.isEmpty()) {
            return large;
        }
        Answer answer = context.elicit("large_numbers");
        if (answer.action() == Answer.Action.CANCEL) {
            throw new CancelledException("the user did not want to decide");
        }
        return answer.accepted() && answer.fields().flag("include") ? List.of() : large;
    }

    private static void stopIfCancelled(Context context) {
        if (context.cancelled()) {
            throw new CancelledException("stopped between two divisors");
        }
    }

    private static String csv(List<Entry> entries) {
        return entries.stream()
                .map(entry -> entry.number() + ","
                        + entry.factors().stream().map(String::valueOf).collect(Collectors.joining(" ")))
                .collect(Collectors.joining("\n", "number,factors\n", "\n"));
    }
}
