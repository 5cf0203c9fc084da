-- Write a value unless the slot has a newer owner. KEYS: 1 fence counter, 2 value.
-- ARGV: 1 fence, 2 value. Returns 1 when written.
local fence = tonumber(redis.call('GET', KEYS[1]) or '0')
if fence > tonumber(ARGV[1]) then return 0 end
redis.call('SET', KEYS[2], ARGV[2])
return 1
