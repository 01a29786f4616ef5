-- Clients follow a call at a gateway.
-- KEYS: the gateways of the call, a sorted set by the milliseconds since 1970 at which their entries end.
-- ARGV: the gateway, milliseconds for which its entry is kept.
-- Answers how many gateways follow the call.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
redis.call('ZADD', KEYS[1], string.format('%.0f', now + ARGV[2]), ARGV[1])
if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
return redis.call('ZCARD', KEYS[1])
