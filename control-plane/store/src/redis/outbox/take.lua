-- An owner goes on with a call.
-- KEYS: the call and its entries, as append.lua keeps them.
-- ARGV: milliseconds for which both are kept at least, the owner.
-- Answers false where no log was begun, else {the log, the number that comes next, all entries, {}}: its owner asks again what was open.
redis.call('HSET', KEYS[1], 'owner', ARGV[2])
local left = math.max(tonumber(ARGV[1]), redis.call('PTTL', KEYS[1]))
for _, key in ipairs(KEYS) do redis.call('PEXPIRE', key, left) end
local known = redis.call('HMGET', KEYS[1], 'log', 'next')
if not known[1] then return false end
return {known[1], known[2], redis.call('LRANGE', KEYS[2], 0, -1), {}}
