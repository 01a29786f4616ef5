-- Keeps an answer under a key that has none, where its org has room.
-- KEYS: the answer, which is a hash of 32 bytes and what follows; of the org, when its answers end, a sorted set of
-- "<name>:<bytes>" by milliseconds since 1970; and the bytes of all of them.
-- ARGV: the answer's name, milliseconds for which it is kept, most answers, most bytes, the hash, the answer.
-- Answers 1 where it is kept, or else 0.
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
local kept = 0
local size = #ARGV[6]
if redis.call('EXISTS', KEYS[1]) == 0 and redis.call('ZCARD', KEYS[2]) < tonumber(ARGV[3])
    and bytes + size <= tonumber(ARGV[4]) then
  redis.call('SET', KEYS[1], ARGV[5] .. ARGV[6], 'PX', ARGV[2])
  -- One that is gone, and whose time is not over by this clock, is counted already.
  local new = redis.call('ZADD', KEYS[2], string.format('%.0f', now + ARGV[2]), ARGV[1] .. ':' .. size)
  bytes, kept = bytes + new * size, 1
end
local left = math.max(kept * ARGV[2], redis.call('PTTL', KEYS[2]))
if left > 0 then
  redis.call('SET', KEYS[3], string.format('%.0f', math.max(0, bytes)), 'PX', string.format('%.0f', left))
  redis.call('PEXPIRE', KEYS[2], string.format('%.0f', left))
end
return kept
