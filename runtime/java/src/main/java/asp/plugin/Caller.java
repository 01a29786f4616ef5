package asp.plugin;

/** Whose call it is; ids only, empty where unknown. */
public record Caller(String tenant, String user, String session) {}
