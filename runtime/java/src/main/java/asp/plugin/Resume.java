package asp.plugin;

import com.fasterxml.jackson.databind.JsonNode;

/**
 * Where a lost execution stood.
 *
 * @param state the last stored checkpoint, or null when there is none
 * @param seq its number; 0 without one
 * @param attempt which execution this is, from 2 on
 * @param token proof for the plugin's own services that this execution replaces the former one
 */
public record Resume(JsonNode state, long seq, int attempt, Secret token) {
    /** Returns the state as a class of the author's, or null when there is none. */
    public <T> T as(Class<T> type) {
        return state == null ? null : Json.convert(state, type);
    }
}
