"""The patterns of prompt injections, by sign and weight. Every repetition in them is bounded."""

# ruff: noqa: E501, RUF001  # one pattern a line, in the letters of its language

from __future__ import annotations

import re

_GAP = r"[^.!?\n。！？]{0,40}"
_OLD = (
    r"(?:previous|prior|above|earlier|preceding|former|existing|original|initial|old|your|all|any|the|these|those|system|"
    r"safety|developer)"
)
_RULES = r"(?:instruction|prompt|direction|directive|rule|guideline|command|message|context|order|polic|restriction|safeguard)"


def _compile(*patterns: str) -> re.Pattern[str]:
    text = "|".join(patterns)
    for name, pattern in (("<gap>", _GAP), ("<old>", _OLD), ("<rules>", _RULES)):
        text = text.replace(name, pattern)
    return re.compile(text)


# Weight 3 is enough for the default threshold; two of weight 2 are, one is not.
SIGNS: tuple[tuple[str, int, re.Pattern[str]], ...] = (
    (
        "override",
        3,
        _compile(
            r"\b(?:ignore|ignoring|disregard|forget|override|bypass|discard|drop|neglect|set aside|pay no attention to|do not follow|"
            r"don't follow|stop following|cancel|void)\b<gap>\b<old>\b<gap>\b<rules>",
            r"\b(?:ignore|disregard|forget)\b (?:everything|anything|all|what)\b<gap>\b(?:above|before|said|told|so far|earlier|prior)",
            r"\b(?:instructions?|rules?|prompts?) (?:above|before this|so far)\b.{0,30}\b(?:void|no longer|cancel|obsolete|superseded)",
            r"\b(?:vergiss|vergessen|ignorier|missacht)\w{0,12}\b<gap>\b(?:anweisung|instruktion|regel|vorgabe|befehl|gesagt)",
            r"\b(?:ignor|oubli|ne tiens? pas|ne tenez pas)\w{0,12}\b<gap>\b(?:instruction|consigne|directive|r[eè]gle)",
            r"\b(?:ignor|olvid|descart|haz caso omiso|no sigas)\w{0,12}\b<gap>\b(?:instruccion|indicacion|regla|[oó]rden|prompt)",
            r"\b(?:ignor|dimentic|trascur)\w{0,12}\b<gap>\b(?:istruzion|regol|indicazion|direttiv)",
            r"\b(?:ignor|esque[cç]|desconsider)\w{0,12}\b<gap>\b(?:instru[cç]|regra|ordens|diretriz)",
            r"\b(?:negeer|vergeet)\w{0,12}\b<gap>\b(?:instructie|opdracht|regel|aanwijzing)",
            r"\b(?:zignoruj|ignoruj|zapomnij)\w{0,12}\b<gap>(?:instrukcj|polece|zasad)",
            r"(?:игнорир|проигнорир|забуд|не обращай внимания)\w{0,12}<gap>(?:инструкц|указан|правил|команд)",
            r"(?:ігноруй|забудь)\w{0,12}<gap>(?:інструкц|вказів|правил)",
            r"(?:önceki|yukarıdaki)<gap>(?:talimat|komut|kural)<gap>(?:yok say|unut|görmezden|dikkate alma)",
            r"(?:忽略|无视|無視|忘记|忘掉|不要理会|忽視).{0,20}(?:指令|指示|提示|规则|規則|命令|说明)",
            r"(?:指示|命令|指令|ルール|プロンプト).{0,15}(?:無視|忘れ|破棄)",
            r"(?:이전|위의|앞의|기존).{0,20}(?:지시|명령|지침|프롬프트).{0,15}(?:무시|잊)",
            r"(?:تجاهل|انس|أهمل).{0,25}(?:التعليمات|الأوامر|التوجيهات|القواعد)",
            r"(?:पिछले|ऊपर|पहले).{0,25}(?:निर्देश|आदेश|नियम).{0,20}(?:अनदेखा|भूल|नज़रअंदाज़|नजरअंदाज)",
        ),
    ),
    (
        "new role",
        3,
        _compile(
            r"\byou are (?:now|no longer)\b(?! (?:able|ready|logged|subscribed|connected|viewing|leaving|in the|on the|a member|a subscriber|registered|eligible|free|here|done))",
            r"\b(?:pretend (?:to be|you are|that you)|act as (?:if you|an? (?:unrestricted|unfiltered|evil|root|dan|different|ai|admin))|roleplay as|from now on,? you)",
            r"\b(?:developer|debug|god|admin|maintenance|jailbreak|dan|unrestricted|sudo) mode\b.{0,30}\b(?:enabl|activ|on\b|engag|unlock|entered)",
            r"\b(?:enabl|activat|enter|switch to|engag)\w{0,12}\b.{0,20}\b(?:developer|debug|god|admin|jailbreak|dan|unrestricted|sudo) mode\b",
            r"\bdo anything now\b|\bwithout any (?:restrictions|filters|safety)",
            r"\b(?:du bist (?:ab )?(?:jetzt|nun)|ab jetzt bist du|tu es maintenant|eres ahora|ahora eres|a partir de ahora eres|ora sei|agora voc[eê] [eé]|je bent nu)\b",
            r"(?:ты теперь|теперь ты|你现在是|从现在起你|あなたは今から|이제부터 너는|너는 이제)",
        ),
    ),
    (
        "chat markup",
        3,
        _compile(
            r"<\|?(?:im_start|im_end|system|assistant|endoftext|eot_id|start_header_id)\|?>|\[/?inst\]|<<sys>>",
            r"</?(?:system|assistant|tool_result|function_results|instructions|untrusted|tool_output|user_query)>",
            r"(?m:^[ \t]{0,8}(?:#{2,4}|\*\*)?[ \t]{0,4}(?:system|assistant|developer|human) ?(?:message|prompt|override|note|update)?(?:\*\*)? ?:)",
            r"\[(?:system|admin|developer|assistant)(?: (?:message|prompt|note|override|update|notice))?\]",
            r"\bend of (?:(?:the )?(?:document|tool (?:output|result)|untrusted|user (?:input|data)|web ?page|context|data))\b.{0,40}(?:instruction|system|now|new)",
        ),
    ),
    (
        "addresses a model",
        2,
        _compile(
            r"\b(?:attention|note|message|notice|instructions?|important|hey|dear|hello|memo|reminder|request)\b.{0,15}\b(?:to|for)?\b.{0,8}\b(?:ai|llm|language model|chatgpt|gpt|claude|gemini|copilot|assistant|ai agent|chatbot|agent|crawler|summari[sz]er|bots?)\b",
            r"\b(?:if you are|as|when you,?) an? (?:ai|llm|large language|language|automated) ?(?:model|assistant|agent|system|reading|processing|summari)?",
            r"\b(?:ai|llm|language model)s? (?:assistants?|agents?|models?)?\s?(?:reading|processing|summari[sz]ing|parsing|must|should|shall|who reads?|that reads?|are required|has to|have to)",
            r"\b(?:dear|hey|hi|hello) (?:ai|llm|assistant|claude|chatgpt|gpt|gemini|copilot|agent|bot|model)\b",
            r"\b(?:sprachmodell|ki-?(?:assistent|agent|modell)|mod[eè]le de langage|assistant ia|agent ia|asistente de ia|modelo de lenguaje|modello linguistico|assistente (?:ia|ai)|modelo de linguagem|taalmodel)",
            r"(?:языков\w+ модел|ии-?(?:ассистент|агент|помощник)|人工智能助手|ai助手|语言模型|言語モデル|aiアシスタント|인공지능|ai 어시스턴트|نموذج لغوي|المساعد الذكي|yapay zek[aâ])",
        ),
    ),
    (
        "asks a model",
        2,
        _compile(
            r"\b(?:ai|llm|language|claude|chatgpt|gemini|copilot)\b[^.!?\n]{0,60}\b(?:give|rate|reply|respond|stop|write|recommend|always|visit|send|approve|skip|delete|tell|say|print|call|run)\b",
            r"(?:mod[eè]le de langage|assistant ia|agent ia|asistente de ia|modelo de lenguaje|modello linguistico|assistente (?:ia|ai)|modelo de linguagem|ki-?(?:assistent|agent)\w{0,3}|sprachmodell|taalmodel)[^.!?\n]{0,60}\b(?:recommand|r[eé]pond|envo|env[ií]|recomi|respond|borr|invi|cancell|raccomand|mostr|empfiehl|empfehl|sende|schick|lösch|antwort|stuur)",
        ),
    ),
    (
        "secrets wanted",
        3,
        _compile(
            r"\b(?:reveal|print|repeat|output|show|display|leak|disclose|send|paste|include|tell|give|append|write out|return|quote|recite|share)\w{0,12}\b[^.!?\n]{0,30}\b(?:system prompt|hidden (?:prompt|instruction)|initial (?:prompt|instruction)|your (?:instructions|prompt|rules|configuration|guidelines)|full (?:prompt|conversation|context)|conversation (?:history|so far|above))",
            r"\b(?:send|post|upload|exfiltrat|forward|email|e-mail|mail|transmit|leak|submit|copy|append|include|embed|encode|attach|collect|read|cat)\w{0,12}\b[^.!?\n]{0,60}(?:\b(?:api[_ -]?keys?|password|credential|secret|access token|ssh key|private key|environment variable|env var|\.env|cookies|id_rsa|aws_secret)|~/\.(?:ssh|aws)|/etc/passwd)[^.!?\n]{0,80}(?:https?:|@|\burl\b|\bto\b|query|webhook|param|image|reply|answer|output|\bhere\b)",
            r"!\[[^\]]{0,60}\]\(https?://[^)\s]{1,200}(?:\{|%7b|<|\[|data=|secret|history|context|token=|q=\$)",
            r"\b(?:schick|sende|envoie|envoyez|env[ií]a|invia|envie|stuur|wyślij)\w{0,12}\b[^.!?\n]{0,60}\b(?:passw|mot de passe|contrase|senha|wachtwoord|hasł|schlüssel|api|cl[eé]|clave|chiav|geheim|zugangsdaten|credenciales|credenziali)",
            r"(?:отправь|пришли|перешли|выведи)\w{0,12}.{0,40}(?:парол|ключ|токен|секрет|системн)|(?:发送|发到|上传|泄露|输出|显示).{0,20}(?:密码|密钥|口令|令牌|系统提示)|(?:パスワード|apiキー|システムプロンプト).{0,20}(?:送信|送って|表示|出力)|(?:비밀번호|api 키|시스템 프롬프트).{0,20}(?:보내|전송|출력)|(?:أرسل|اطبع).{0,30}(?:كلمة المرور|كلمات المرور|المفاتيح|مفتاح)",
        ),
    ),
    (
        "secrecy",
        3,
        _compile(
            r"\b(?:do not|don't|never|without) (?:tell|mention|inform|notify|alert|reveal|show|say|disclos|inform|telling|mentioning|informing|asking|notifying|alerting)\w{0,12}\b[^.!?\n]{0,25}\b(?:user|human|operator|owner|this (?:message|instruction|note|step|to)|these instructions|them|him|her)\b",
            r"\b(?:secretly|silently|covertly|quietly|discreetly)\b[^.!?\n]{0,40}\b(?:send|forward|run|execut|delet|add|insert|upload|install|change|transfer|include|append|call|use)",
            r"\b(?:sag|sage|erwähne|verrate)\w{0,12}\b[^.!?\n]{0,30}\b(?:nutzer|benutzer|anwender)\b[^.!?\n]{0,20}\bnicht|\bohne (?:den |dem )?(?:nutzer|benutzer)\b|\bne (?:dis|mentionne|parle|pr[eé]vien)\w{0,12}\b[^.!?\n]{0,40}\b(?:utilisateur|personne)|\bno (?:se lo )?(?:digas|menciones|avises|informes)\b|\bnon (?:dire|dirlo|menzionare|informare)\b|\bn[aã]o (?:conte|diga|mencione|informe|avise)\b|не (?:говори|сообщай|упоминай)\w{0,12}|不要(?:告诉|提及|通知)|(?:ユーザー|利用者)に(?:は)?(?:言わ|知らせ|伝え)な|사용자에게 (?:말하지|알리지)|(?:لا تخبر|دون إخبار|ولا تذكر)",
        ),
    ),
    (
        "commands",
        2,
        _compile(
            r"\b(?:run|execute|paste|type|invoke|call|use)\b[^.!?\n]{0,40}(?:\bcurl\b|\bwget\b|\brm -rf\b|\bchmod\b|\bbash -c\b|\bpowershell\b|\beval\b|\bnc -|\bsudo\b|\bbash tool\b|\bshell tool\b|\bfollowing (?:command|tool)|\bsend_\w|\bdelete_\w|\bthis command)",
            r"\bcurl\b[^\n]{0,80}\| {0,4}(?:ba|z)?sh\b|\brm -rf [/~]",
            r"\b(?:you must|you have to|you are required to|immediately|urgent|first|now|next|before (?:you )?(?:continu|answer|respond|repl)\w{0,12}|always|instead)\b[^.!?\n]{0,40}\b(?:call|invoke|use|run|execute|fetch|visit|open|navigate to|send|transfer|delete|approve|forward|recommend|reply|respond|answer|output|say|write)\b",
            r"\b(?:new|updated|real|actual|additional|higher[- ]priority|secret|hidden) (?:instruction|task|objective|directive|order|system prompt|goal|mission)s?\b",
            r"\b(?:neue (?:anweisung|aufgabe|instruktion)|nouvelles? (?:instruction|consigne|t[aâ]che)|nuevas? (?:instrucci|tarea|[oó]rden)|nuov[eai] (?:istruzion|compit)|novas? (?:instru|tarefa)|nieuwe (?:instructie|opdracht|taak)|nowe (?:instrukcj|polecen|zadani))|(?:нов\w{1,4} (?:инструкц|задани|указан))|新(?:的)?(?:指令|任务|指示)|新しい(?:指示|命令|タスク)|새로운 (?:지시|명령|작업)|تعليمات جديدة|yeni (?:talimat|görev)",
        ),
    ),
    (
        "false authority",
        2,
        _compile(
            r"\b(?:this is|message from|on behalf of|authori[sz]ed by|approved by|signed by|instructed by) (?:the |your |an? )?(?:system|admin\w{0,12}|developer|openai|anthropic|google|operator|security team|owner|user|it department|ceo)\b",
            r"\b(?:the |your )?(?:user|operator|owner|admin\w{0,12}|developer|security team) (?:has |have )?(?:already )?(?:approved|authori[sz]ed|confirmed|consented|permitted|agreed|asked|wants|requested|instructed)\b",
            r"\b(?:system|security|admin) (?:override|alert|notice)\b|\bpriority (?:override|one|level)\b|\boverride code\b",
            r"\b(?:always|only) (?:answer|respond|reply|recommend|rate|say|conclude)\b|\b(?:rate|rank|recommend|score|evaluate) this (?:product|candidate|paper|resume|cv|company|article|submission|applicant)\b[^.!?\n]{0,40}\b(?:best|highest|top|first|strong|excellent|accept|hire|10)",
        ),
    ),
)
