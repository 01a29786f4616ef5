package asp.plugin;

/** Level of a log line, as MCP names them. */
public enum LogLevel {
    DEBUG(System.Logger.Level.DEBUG),
    INFO(System.Logger.Level.INFO),
    NOTICE(System.Logger.Level.INFO),
    WARNING(System.Logger.Level.WARNING),
    ERROR(System.Logger.Level.ERROR),
    CRITICAL(System.Logger.Level.ERROR),
    ALERT(System.Logger.Level.ERROR),
    EMERGENCY(System.Logger.Level.ERROR);

    private final System.Logger.Level nearest;

    LogLevel(System.Logger.Level nearest) {
        this.nearest = nearest;
    }

    /** Returns the nearest level that the Java platform has. */
    public System.Logger.Level nearest() {
        return nearest;
    }
}
