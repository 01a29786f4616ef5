-- Removes entries from the inbox of a call.
-- KEYS: as in put.lua. ARGV: the call, the names of the entries…
-- Answers how many there were.
local bytes, removed = tonumber(redis.call('GET', KEYS[3]) or '0'), 0
for i = 2, #ARGV do
  local size = redis.call('HSTRLEN', KEYS[1], ARGV[i])
  removed = removed + redis.call('HDEL', KEYS[1], ARGV[i])
  -- What was not counted any more takes nothing from the count.
  if redis.call('ZREM', KEYS[2], ARGV[1] .. ':' .. ARGV[i] .. ':' .. size) == 1 then bytes = bytes - size end
end
local left = redis.call('PTTL', KEYS[2])
if left > 0 then
  redis.call('SET', KEYS[3], string.format('%.0f', math.max(0, bytes)), 'PX', string.format('%.0f', left))
else
  redis.call('DEL', KEYS[3])
end
return removed
