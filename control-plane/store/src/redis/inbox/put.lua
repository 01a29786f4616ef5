-- Puts an entry into the inbox of a call, where it has none of that name, and the call and its org have room.
-- KEYS: the inbox, a hash of entries by name; of the org, when its entries end, a sorted set of "<call>:<name>:<bytes>" by
-- milliseconds since 1970; and the bytes of all of them.
-- ARGV: the call, the entry's name, the entry, milliseconds for which the inbox is kept at least, most entries and bytes of a
-- call, most bytes of an org.
-- Answers 1 where it is stored, 2 where there is one of that name, or else 0.
local call, name, size = ARGV[1], ARGV[2], #ARGV[3]
if redis.call('HEXISTS', KEYS[1], name) == 1 then return 2 end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local bytes = tonumber(redis.call('GET', KEYS[3]) or '0')
-- What is over, some at a time: there comes at most one with each.
for _, member in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now, 'LIMIT', 0, 100)) do
  redis.call('ZREM', KEYS[2], member)
  bytes = bytes - tonumber(string.match(member, ':(%d+)$'))
end
-- It was lost without its count.
if redis.call('ZCARD', KEYS[2]) == 0 then bytes = 0 end
local entries, held = 1, size
for _, other in ipairs(redis.call('HKEYS', KEYS[1])) do
  entries, held = entries + 1, held + redis.call('HSTRLEN', KEYS[1], other)
end
local stored, left = 0, redis.call('PTTL', KEYS[2])
if entries <= tonumber(ARGV[5]) and held <= tonumber(ARGV[6]) and bytes + size <= tonumber(ARGV[7]) then
  local keep = math.max(tonumber(ARGV[4]), redis.call('PTTL', KEYS[1]))
  redis.call('HSET', KEYS[1], name, ARGV[3])
  redis.call('PEXPIRE', KEYS[1], string.format('%.0f', keep))
  redis.call('ZADD', KEYS[2], string.format('%.0f', now + keep), call .. ':' .. name .. ':' .. size)
  bytes, stored, left = bytes + size, 1, math.max(keep, left)
end
if left > 0 then
  redis.call('SET', KEYS[3], string.format('%.0f', math.max(0, bytes)), 'PX', string.format('%.0f', left))
  redis.call('PEXPIRE', KEYS[2], string.format('%.0f', left))
end
return stored
