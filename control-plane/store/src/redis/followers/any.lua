-- Answers how many gateways follow a call.
-- KEYS: the gateways of the call, as enter.lua keeps them.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
return redis.call('ZCOUNT', KEYS[1], '(' .. string.format('%.0f', now), '+inf')
