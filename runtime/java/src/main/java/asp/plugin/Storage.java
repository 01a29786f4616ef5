package asp.plugin;

import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import java.util.List;
import java.util.Optional;

/**
 * Keys and JSON values that outlive the call, at any gateway: those of the caller's org, or, by {@link #ofUser}, of the
 * caller's user alone. Needs {@code storage: true} in the spec's {@code runtime}. Keys have 1 to 256 bytes and no control
 * characters. At most 16 requests of a call wait for their answer; others wait for a place.
 *
 * <p>Each method throws {@link PluginException} STORAGE_FAILED with the `reason` in its details: bad_key, bad_ttl,
 * too_large, storage_full, conflict, not_granted, too_many or unavailable. After the last one a put or a delete may have
 * happened.
 */
public interface Storage {
    /** A value with its version, which is another one after each put. */
    record StoredValue(JsonNode value, long version) {}

    /**
     * How a value is stored.
     *
     * @param ttl time after which it expires, 1 second to 90 days; null for 30 days
     * @param ifVersion version that the key must have, 0 for no value; null for any
     */
    record PutOptions(Duration ttl, Long ifVersion) {
        /** For 30 days, whatever the key has. */
        public static final PutOptions DEFAULT = new PutOptions(null, null);

        public PutOptions expiringAfter(Duration time) {
            return new PutOptions(time, ifVersion);
        }

        public PutOptions onlyIf(long version) {
            return new PutOptions(ttl, version);
        }
    }

    /** Returns the keys of the caller's user, which no other user's calls see. */
    Storage ofUser();

    /** Returns the value of a key. */
    default Optional<JsonNode> get(String key) {
        return getVersioned(key).map(StoredValue::value);
    }

    /** Returns the value of a key with its version, for {@link PutOptions#onlyIf}. */
    Optional<StoredValue> getVersioned(String key);

    /** Stores anything that is at most 64 KiB of JSON for 30 days, and returns its version. */
    default long put(String key, Object value) {
        return put(key, value, PutOptions.DEFAULT);
    }

    /** Stores a value as above, as the options say. */
    long put(String key, Object value, PutOptions options);

    /** Returns the keys that begin with `prefix`, in the order of their bytes in UTF-8. */
    List<String> list(String prefix);

    /** Deletes a key; whether it had a value. */
    boolean delete(String key);
}
