package asp.plugin.testing;

import asp.plugin.Caller;
import asp.plugin.Json;
import asp.plugin.Storage;
import asp.plugin.worker.Reasons;
import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;

/**
 * A storage in memory, in place of the platform's and with its bounds. Give it to the contexts of several calls to test what
 * one call leaves to the next.
 */
public final class FakeStorage {
    private static final int MAX_KEY = 256;
    private static final int MAX_VALUE = 64 << 10;
    private static final int MAX_KEYS = 1_000;
    private static final int MAX_BYTES = 4 << 20;
    private static final Comparator<String> BYTES =
            (one, other) -> Arrays.compareUnsigned(utf8(one), utf8(other));
    private static final Duration DEFAULT_TTL = Duration.ofDays(30);
    private static final Duration MIN_TTL = Duration.ofSeconds(1);
    private static final Duration MAX_TTL = Duration.ofDays(90);

    private record Owner(String tenant, String user) {}

    @SuppressWarnings("ArrayRecordComponent")
    private record Entry(byte[] text, long version, long expires) {}

    private final Map<Owner, TreeMap<String, Entry>> entries = new HashMap<>();
    private long versions;
    private long passedNanos;
    private String fault = "";

    /** Lets time pass, so that keys expire. */
    public synchronized void advance(Duration time) {
        passedNanos += time.toNanos();
    }

    /** Gives every request this word, such as `unavailable`, in place of a result; an empty one ends that. */
    public synchronized void fail(String word) {
        fault = word;
    }

    /** Returns what calls of this caller see. */
    public Storage of(Caller caller) {
        return new View(caller, false);
    }

    private synchronized Optional<Storage.StoredValue> get(Owner owner, String key) {
        check(key, false);
        return Optional.ofNullable(keys(owner).get(key))
                .map(entry -> new Storage.StoredValue(parse(entry.text()), entry.version()));
    }

    private synchronized long put(Owner owner, String key, byte[] text, Storage.PutOptions options) {
        check(key, false);
        Duration ttl = options.ttl() == null ? DEFAULT_TTL : options.ttl();
        if (text.length > MAX_VALUE) {
            throw Reasons.noStorage("too_large");
        }
        if (ttl.compareTo(MIN_TTL) < 0 || ttl.compareTo(MAX_TTL) > 0) {
            throw Reasons.noStorage("bad_ttl");
        }
        TreeMap<String, Entry> keys = keys(owner);
        Entry replaced = keys.get(key);
        long version = replaced == null ? 0 : replaced.version();
        if (options.ifVersion() != null && options.ifVersion() != version) {
            throw Reasons.noStorage("conflict");
        }
        checkBounds(owner.tenant(), replaced, size(key, text));
        keys.put(key, new Entry(text, ++versions, now() + ttl.toNanos()));
        return versions;
    }

    private void checkBounds(String tenant, Entry replaced, long more) {
        int count = 1;
        long bytes = more;
        for (Map.Entry<Owner, TreeMap<String, Entry>> of : entries.entrySet()) {
            for (Map.Entry<String, Entry> entry : of.getValue().entrySet()) {
                if (of.getKey().tenant().equals(tenant) && entry.getValue() != replaced) {
                    count++;
                    bytes += size(entry.getKey(), entry.getValue().text());
                }
            }
        }
        if (count > MAX_KEYS || bytes > MAX_BYTES) {
            throw Reasons.noStorage("storage_full");
        }
    }

    private synchronized List<String> list(Owner owner, String prefix) {
        check(prefix, true);
        List<String> found = new ArrayList<>(keys(owner).keySet());
        found.removeIf(key -> !key.startsWith(prefix));
        return found;
    }

    private synchronized boolean delete(Owner owner, String key) {
        check(key, false);
        return keys(owner).remove(key) != null;
    }

    private void check(String key, boolean mayBeEmpty) {
        if (!fault.isEmpty()) {
            throw Reasons.noStorage(fault);
        }
        boolean fits = utf8(key).length <= MAX_KEY && key.codePoints().noneMatch(Character::isISOControl);
        if (!fits || key.isEmpty() && !mayBeEmpty) {
            throw Reasons.noStorage("bad_key");
        }
    }

    /** Returns an owner's keys in their order, and forgets what has expired. */
    private TreeMap<String, Entry> keys(Owner owner) {
        long now = now();
        entries.values().forEach(keys -> keys.values().removeIf(entry -> entry.expires() - now <= 0));
        return entries.computeIfAbsent(owner, none -> new TreeMap<>(BYTES));
    }

    private long now() {
        return System.nanoTime() + passedNanos;
    }

    private static long size(String key, byte[] text) {
        return utf8(key).length + (long) text.length;
    }

    private static byte[] utf8(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static JsonNode parse(byte[] text) {
        try {
            return Json.parse(text);
        } catch (IOException impossible) {
            throw new UncheckedIOException(impossible);
        }
    }

    private final class View implements Storage {
        private final Caller caller;
        private final Owner owner;

        View(Caller caller, boolean ofUser) {
            this.caller = caller;
            this.owner = new Owner(caller.tenant(), ofUser ? caller.user() : "");
        }

        @Override
        public Storage ofUser() {
            return new View(caller, true);
        }

        @Override
        public Optional<StoredValue> getVersioned(String key) {
            return FakeStorage.this.get(owner, key);
        }

        @Override
        public long put(String key, Object value, PutOptions options) {
            return FakeStorage.this.put(owner, key, Json.bytes(value), options);
        }

        @Override
        public List<String> list(String prefix) {
            return FakeStorage.this.list(owner, prefix);
        }

        @Override
        public boolean delete(String key) {
            return FakeStorage.this.delete(owner, key);
        }
    }
}
